import {
  NotRecomputable,
  type RecordedCheck,
  type RecordedDecision,
  type ReplayedCall,
} from '../authority/decision.ts'
import type { LedgerReplay, ReplayedPrincipal } from '../authority/replay.ts'
import type {
  CheckDigest,
  ConfigurationCheck,
  ConfigurationState,
  PrincipalState,
} from '../authority/states.ts'
import { bindingsWith, type HypotheticalChanges, resourceWith } from './changes.ts'

interface JudgedChecks {
  /** The checks that the call was judged by, in order. */
  readonly known: readonly ConfigurationCheck[]
  /** The known checks that its row says were asked, in their order. */
  readonly asked: readonly RecordedCheck[]
}

/**
 * Why a check refuses a call, or null. Its recorded verdict counts, even of a shadow. Throws {@link
 * NotRecomputable} if it was not asked, by that code and options.
 */
export function refusalOfCheck(check: ConfigurationCheck, judged: JudgedChecks): string | null {
  const verdict = verdicts(judged).find(([one]) => isSame(one, check))?.[1]
  if (verdict === undefined) throw new NotRecomputable(`the check ${check.name} was never asked`)
  if (verdict === 'pass') return null
  if (verdict === 'failed') return 'plugin_failed'
  // No module of an operator's own may have this name.
  return check.name === 'content' ? 'content_refused' : 'policy_denied'
}

/** Returns whether two configurations have the same checks, and the same of them judge. */
export const hasSameChecks = (
  some: readonly ConfigurationCheck[],
  others: readonly ConfigurationCheck[],
): boolean =>
  some.length === others.length &&
  some.every((check, at) => {
    const other = others[at]
    return other !== undefined && isSame(check, other) && check.shadow === other.shadow
  })

const isSame = (one: ConfigurationCheck, other: ConfigurationCheck): boolean =>
  one === other ||
  (one.name === other.name &&
    one.digest === other.digest &&
    one.options !== null &&
    one.options === other.options)

function verdicts({ known, asked }: JudgedChecks): readonly (readonly [ConfigurationCheck, string])[] {
  let from = 0
  return asked.flatMap((said) => {
    const at = known.findIndex((check, index) => index >= from && isNamed(check, said))
    const check = known[at]
    if (!check) return []
    from = at + 1
    return [[check, said.verdict] as const]
  })
}

const isNamed = (check: CheckDigest, said: CheckDigest): boolean =>
  check.name === said.name && check.digest === said.digest && check.shadow === said.shadow

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
      grants: replay.grants,
      resources: id !== null && reached ? new Map([[id, resourceWith(changes, id, reached)]]) : new Map(),
      stops: replay.stops,
    },
  }
}

const stateOf = (
  { states }: ReplayedPrincipal,
  revision: number | null,
  isSummary: boolean,
): PrincipalState | undefined =>
  isSummary ? states.findLast((state) => state.revision === revision) : states.at(-1)
