import { hash, randomBytes } from 'node:crypto'
import type { z } from 'zod'
import { deleteRehearsals, findRehearsal, insertRehearsal } from '../../../db/rehearsal/store.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { notFound, Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { ResolvableChange, ResolvedChanges } from './resolve.ts'
import type { ChangePreview, rehearsalShape } from './run.ts'
import { DEFAULT_WINDOW_MS, runRehearsal, windowOf } from './run.ts'

export type Rehearsal = z.output<typeof rehearsalShape>

/** Records a rehearsal with one row, which commits to its question and result, and keeps it for 30 days. */
export async function recordRehearsal(
  context: AdminContext,
  caller: AdminCaller,
  { text, etags }: ResolvedChanges,
  made: ChangePreview,
): Promise<Rehearsal> {
  const { database } = context
  const id = `reh_${randomBytes(12).toString('hex')}`
  const whole = { id, ...made }
  const result = JSON.stringify(whole)
  const { since, until, decisions, first, last } = made.window
  await commitChange(context, caller, {
    action: 'rehearsal.done',
    detail: {
      rehearsal: id,
      changes_sha256: hash('sha256', text),
      result_sha256: hash('sha256', result),
      window: { since, until, first, last },
      decisions,
      unchanged: made.unchanged,
      ...made.totals,
      disagreements: made.disagreements,
    },
    statements: [
      deleteRehearsals(database, caller.at - DEFAULT_WINDOW_MS),
      insertRehearsal(database, {
        rehearsal_id: id,
        created_at: timestamp(caller.at),
        rehearsed_by: caller.actor.id,
        changes: text,
        etags: JSON.stringify(etags),
        result,
      }),
    ],
  })
  return whole
}

/** The age up to which a change may rest on a rehearsal. ms. */
const FRESH_MS = 15 * 60_000

/**
 * Refuses with `rehearsal_required` a change that must name its rehearsal. One that only takes away does not
 * wait for a place to rehearse in (docs/threats.md#h2).
 */
export async function refuseUnrehearsed(
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
    message: `Of the calls that were allowed in the last 30 days this would refuse ${rehearsed.totals.newly_refused}. Rehearse the change, and name the rehearsal in If-Rehearsed.`,
  })
}

/**
 * Rehearses a change for its second operator, and returns the rehearsal's id. Null: no rehearsal can describe
 * it, it is about nobody, or too many rehearse; it waits anyway.
 */
export async function rehearseProposedChange(
  context: AdminContext,
  change: ResolvableChange,
  caller: AdminCaller,
): Promise<string | null> {
  // The proposal names the state of its object as it is now: so does its rehearsal.
  change.forget()
  const resolved = await change.resolve().catch(ignoreUnresolvable)
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

/**
 * Returns the id of the rehearsal that a change names. Refuses with `not_found`, and with
 * `precondition_failed` if the rehearsal is about another change, or old.
 */
export async function checkNamedRehearsal(
  { database }: AdminContext,
  named: string,
  { text, etags }: ResolvedChanges,
  at: number,
): Promise<string> {
  const found = await findRehearsal(database, named)
  if (!found) throw notFound('There is no rehearsal with this id. Rehearse the change again.')
  const stale = (message: string) => new Refusal('precondition_failed', { message })
  if (found.changes !== text) throw stale('This rehearsal is about another change. Rehearse this one.')
  if (at - Date.parse(found.created_at) > FRESH_MS)
    throw stale('This rehearsal is older than 15 minutes. Rehearse the change again.')
  // Proven by record: an object of texts, written in the order of the changes, which are the same.
  if (found.etags !== JSON.stringify(etags))
    throw stale('The state that this rehearsal judged has changed. Rehearse the change again.')
  return found.rehearsal_id
}
