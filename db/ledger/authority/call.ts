import type { RecordedAuthority, RecordedDecision } from './decision.ts'
import type { LedgerReplay } from './replay.ts'
import type { ConfigurationState, PrincipalState } from './states.ts'

export interface ReplayedCall {
  readonly decision: RecordedDecision
  readonly authority: RecordedAuthority
  readonly configuration: ConfigurationState
  readonly principal: PrincipalState
  readonly bindings: ReadonlyMap<string, string>
  readonly replay: Pick<LedgerReplay, 'resources' | 'stops'>
}

export class RowContradiction extends Error {}

export class NotRecomputable extends Error {}
