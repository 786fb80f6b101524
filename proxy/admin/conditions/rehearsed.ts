import { findRehearsal, type StoredRehearsal } from '../../../db/rehearsal/store.ts'
import type { Plugin } from '../../../plugins/plugin.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { ChangeRequest } from './asked.ts'
import { recordRehearsal } from './record.ts'
import type { ResolvableChange, ResolvedChanges } from './resolve.ts'
import { runRehearsal } from './run.ts'
import { windowOf } from './window.ts'

/** The age up to which a change may rest on a rehearsal. ms. */
const FRESH_MS = 15 * 60_000

/** The rehearsal that a change rests on. */
export interface ChangeRehearsal {
  /** Null: the change names none, and needs none. */
  readonly rehearsal: string | null
}

/**
 * Asks for the rehearsal of a change (docs/rehearsal.md#required). Refuses with `not_found` and
 * `precondition_failed` if the change names one that is not its own, or old, and with `rehearsal_required` if
 * it must name one. A change that only takes away needs none while others take all the places to rehearse it
 * in: taking away never waits (docs/threats.md#h2).
 */
export const requiredRehearsal = (
  context: AdminContext,
): Plugin<ChangeRequest & ResolvableChange & AdminCaller, ChangeRehearsal> => ({
  name: 'rehearsal',
  admit: async (facts) => {
    const { isDryRun, resolve, given, at } = facts
    const named = given.ifRehearsed
    if (isDryRun || (named === undefined && context.requireRehearsal === 'never')) return NO_REHEARSAL
    const resolved = await resolve()
    if (!resolved) return NO_REHEARSAL
    if (named !== undefined)
      return { rehearsal: checkNamedRehearsal(await rehearsalNamed(context, named), resolved, at) }
    await refuseUnrehearsed(context, facts, resolved)
    return NO_REHEARSAL
  },
})

const NO_REHEARSAL: ChangeRehearsal = { rehearsal: null }

/** Refuses with `rehearsal_required` a change that must name its rehearsal. */
async function refuseUnrehearsed(
  context: AdminContext,
  caller: AdminCaller,
  resolved: ResolvedChanges,
): Promise<void> {
  const { requireRehearsal, rehearsalPlaces } = context
  if (requireRehearsal === 'always') {
    if (resolved.takesOnly && rehearsalPlaces.isFull('rehearsal')) return
    throw new Refusal('rehearsal_required')
  }
  const rehearsing = runRehearsal(context, caller, resolved, windowOf(caller.at), { purpose: 'change' })
  const rehearsed = await (resolved.takesOnly ? rehearsing.catch(ignoreOverload) : rehearsing)
  if (rehearsed === null || rehearsed.totals.newly_refused === 0) return
  throw new Refusal('rehearsal_required', {
    message: `This would refuse ${rehearsed.totals.newly_refused} calls that were allowed in the last 30 days. Rehearse the change, and name the rehearsal in If-Rehearsed.`,
  })
}

/**
 * Rehearses a change that waits for a second operator, who is to see its effect. Returns the rehearsal's id;
 * null for a change that no rehearsal can describe, or that is about nobody, and if too many rehearse: it
 * waits all the same.
 */
export async function rehearseProposedChange(
  context: AdminContext,
  { resolve }: ResolvableChange,
  caller: AdminCaller,
): Promise<string | null> {
  const resolved = await resolve().catch(ignoreUnresolvable)
  if (!resolved) return null
  const made = await runRehearsal(context, caller, resolved, windowOf(caller.at), {
    purpose: 'change',
  }).catch(ignoreUnresolvable)
  return made && (await recordRehearsal(context, caller, resolved, made)).id
}

function ignoreOverload(error: unknown): null {
  if (error instanceof Refusal && error.reason === 'overloaded') return null
  throw error
}

function ignoreUnresolvable(error: unknown): null {
  if (error instanceof Refusal && NO_ANSWER.has(error.reason)) return null
  throw error
}

const NO_ANSWER: ReadonlySet<RefusalReason> = new Set(['body_unprocessable', 'overloaded'])

async function rehearsalNamed({ database }: AdminContext, id: string): Promise<StoredRehearsal> {
  const found = await findRehearsal(database, id)
  if (!found) throw new Refusal('not_found', { message: 'There is no rehearsal with this id.' })
  return found
}

function checkNamedRehearsal(found: StoredRehearsal, { text, etags }: ResolvedChanges, at: number): string {
  const stale = (message: string) => new Refusal('precondition_failed', { message })
  if (found.changes !== text) throw stale('This rehearsal is about another change.')
  if (at - Date.parse(found.created_at) > FRESH_MS)
    throw stale('This rehearsal is older than 15 minutes. Rehearse the change again.')
  // Proven by record: an object of texts, written in the order of the changes, which are the same.
  if (found.etags !== JSON.stringify(etags))
    throw stale('The state that this rehearsal judged has changed. Rehearse the change again.')
  return found.rehearsal_id
}
