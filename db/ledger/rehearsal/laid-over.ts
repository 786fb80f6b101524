import { type Call, NotRecomputable } from '../authority/call.ts'
import type { Decision } from '../authority/decision.ts'
import type { KnownPrincipal, Replay } from '../authority/replay.ts'
import type { ConfigurationState, PrincipalState } from '../authority/states.ts'
import { bindingsWith, type Changes, resourceWith } from './changes.ts'

/** A decision, and the state that it would rest on with changes laid over that of its own time. */
export interface LaidOver extends Call {
  /** The configuration as it was. */
  readonly recorded: ConfigurationState
}

/** Lays changes over the state that a decision rests on. Throws {@link NotRecomputable} where that is not known. */
export function laidOver(decision: Decision, subject: string, replay: Replay, changes: Changes): LaidOver {
  const { authority, row, summarised } = decision
  if (!authority) throw new NotRecomputable('rows that name no authority')
  const known = replay.principals.get(subject)
  const state = known && stateOf(known, authority.revision, summarised !== null)
  const recorded = replay.configurations.get(row.config_digest)
  if (!known || !state || !recorded) throw new NotRecomputable('rows about a state long past')
  const id = authority.resource?.id ?? null
  const reached = id === null ? undefined : replay.resources.get(id)
  return {
    decision,
    authority,
    recorded,
    configuration: { ...recorded, ...changes.settings },
    principal: { ...state, ...changes.principals.get(subject) },
    bindings: bindingsWith(changes, subject, known, id),
    replay: {
      resources: id !== null && reached ? new Map([[id, resourceWith(changes, id, reached)]]) : new Map(),
    },
  }
}

const stateOf = (
  { states }: KnownPrincipal,
  revision: number | null,
  isSummary: boolean,
): PrincipalState | undefined =>
  isSummary ? states.findLast((state) => state.revision === revision) : states.at(-1)
