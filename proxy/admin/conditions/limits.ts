import type { ChangedLimit, LimitChanges } from '../../../db/ledger/rehearsal/limit-changes.ts'
import { amountAt, type CallLimit, type LimitTerms } from '../../../db/limits/limit.ts'
import { userNamePages } from '../../../db/principals/subject-keys.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import type { AdminContext } from '../operation/context.ts'
import {
  changedTerms,
  type LimitChangeInput,
  newTerms,
  overrideOf,
  termsOf,
} from '../operation/limit-terms.ts'

interface ResolvedLimitChange extends ChangedLimit {
  /** The change in one form. */
  readonly text: object
  /** True: nobody may use more by it. */
  readonly takesAway: boolean
}

/**
 * Lays a change over a limit; `found`: null if it makes one. Refuses with `body_unprocessable` what its operation would
 * refuse. `at`: ms since the epoch.
 */
export function limitChangeOf(
  change: LimitChangeInput,
  found: CallLimit | null,
  at: number,
): ResolvedLimitChange {
  if (found === null || !('id' in change)) {
    // Proven by its caller: a change without an id makes one.
    const { name, terms } = newTerms(change as Parameters<typeof newTerms>[0])
    const laid = { id: null, name, terms: { ...terms, override: null }, isRemoved: false }
    return { ...laid, text: { name, ...terms }, takesAway: true }
  }
  const { id, name } = found
  // One that has ended would be in force again in the past.
  const inForce = found.override && Date.parse(found.override.until) > at ? found.override : null
  const before = { ...termsOf(found), override: inForce }
  if ('remove' in change)
    return { id, name, terms: before, isRemoved: true, text: { id, remove: true }, takesAway: false }
  if ('override' in change) {
    const override = change.override && overrideOf(change.override, at)
    const terms = { ...before, override }
    const takesAway = amountAt(terms, at) <= amountAt(found, at)
    return { id, name, terms, isRemoved: false, text: { id, override }, takesAway }
  }
  const { id: _, ...members } = change
  const changed = changedTerms(found, members)
  const terms = { ...changed.terms, override: inForce }
  const takesAway = allowsNoMore(changed.terms, before)
  return { id, name: changed.name, terms, isRemoved: false, text: { id, ...members }, takesAway }
}

const allowsNoMore = (next: LimitTerms, before: LimitTerms): boolean =>
  next.amount <= before.amount &&
  (next.burst ?? next.amount) <= (before.burst ?? before.amount) &&
  (next.on === 'refuse' || before.on === 'alert') &&
  (next.strict || !before.strict)

/** Adds what rows do not say: users' ids, if a limit names principals, and models by their aliases of now. */
export async function limitChangesOf(
  { database, providers }: Pick<AdminContext, 'database' | 'providers'>,
  limits: readonly ChangedLimit[],
): Promise<LimitChanges> {
  const names = new Map<string, string>()
  if (limits.some(({ terms }) => terms.for.principals))
    for await (const page of userNamePages(database)) {
      for (const { ref, id } of page) names.set(ref, id)
      await eventLoopTurn()
    }
  const aliases = limits.some(({ terms }) => terms.for.models)
    ? providers
        .list(Date.now())
        .providers.flatMap(({ name, aliases: own }) =>
          Object.entries(own).map(([alias, to]) => [`${name}/${alias}`, to] as const),
        )
    : []
  return { limits, names, aliases: new Map(aliases) }
}
