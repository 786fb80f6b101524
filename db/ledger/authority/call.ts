import type { RecordedAuthority, RecordedDecision } from './decision.ts'
import type { LedgerReplay } from './replay.ts'
import type { ConfigurationState, PrincipalState } from './states.ts'

export interface ReplayedCall {
  readonly decision: RecordedDecision
  readonly authority: RecordedAuthority
  readonly configuration: ConfigurationState
  readonly principal: PrincipalState
  readonly bindings: ReadonlyMap<string, string>
  readonly replay: Pick<LedgerReplay, 'resources'>
}

/** Thrown if a row contradicts the rows before it, or leaves out a required name. */
export class RowContradiction extends Error {}

/** Thrown if the rows do not say enough. */
export class NotRecomputable extends Error {}
