import type { Authority, Decision } from './decision.ts'
import type { Replay } from './replay.ts'
import type { ConfigurationState, PrincipalState } from './states.ts'

/** A decision, and the state that it rests on. */
export interface Call {
  readonly decision: Decision
  readonly authority: Authority
  readonly configuration: ConfigurationState
  readonly principal: PrincipalState
  /** Those of the principal: the resource's id by that of each. */
  readonly bindings: ReadonlyMap<string, string>
  readonly replay: Pick<Replay, 'resources'>
}

/** Thrown where a row contradicts the rows before it, or leaves out what it must name. */
export class Contradiction extends Error {}

/** Thrown where the rows do not say enough. */
export class NotRecomputable extends Error {}
