import { NotRecomputable, type ReplayedCall } from '../authority/call.ts'
import type { RecordedDecision } from '../authority/decision.ts'
import type { LedgerReplay, ReplayedPrincipal } from '../authority/replay.ts'
import type { ConfigurationState, PrincipalState } from '../authority/states.ts'
import { bindingsWith, type HypotheticalChanges, resourceWith } from './changes.ts'

export interface RehearsedCall extends ReplayedCall {
  /** The configuration as it was. */
  readonly recorded: ConfigurationState
}

/** Lays changes over a decision's state. Throws {@link NotRecomputable} if that is not known. */
export function rehearsedCall(
  decision: RecordedDecision,
  subject: string,
  replay: LedgerReplay,
  changes: HypotheticalChanges,
): RehearsedCall {
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
  { states }: ReplayedPrincipal,
  revision: number | null,
  isSummary: boolean,
): PrincipalState | undefined =>
  isSummary ? states.findLast((state) => state.revision === revision) : states.at(-1)
