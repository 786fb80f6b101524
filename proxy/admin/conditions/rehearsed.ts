import { findRehearsal, type StoredRehearsal } from '../../../db/rehearsal/store.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { InputSchemas, Operation, ParsedInput, RawInput } from '../operation/operation.ts'
import { recordRehearsal } from './record.ts'
import { type ResolvedChanges, resolveChanges } from './resolve.ts'
import { runRehearsal } from './run.ts'
import { windowOf } from './window.ts'

/** The age up to which a change may rest on a rehearsal. ms. */
const FRESH_MS = 15 * 60_000

/**
 * Asks for the rehearsal of a change (docs/rehearsal.md#required). Returns its id; null where
 * the change names none, and needs none. Refuses with `not_found` and `precondition_failed` where it names one that is
 * not its own, or old, and with `rehearsal_required` where it must name one. A change that only takes away needs none
 * while others take all the places to rehearse it in: taking away never waits (docs/threats.md#h2).
 */
export async function checkRehearsal<T extends InputSchemas, Output>(
  { rehearses }: Operation<T, Output>,
  context: AdminContext,
  { input, given: { ifRehearsed: named } }: { readonly input: ParsedInput<T>; readonly given: RawInput<T> },
  caller: AdminCaller,
): Promise<string | null> {
  const { requireRehearsal: required, rehearsalPlaces } = context
  if (!rehearses || (named === undefined && required === 'never')) return null
  const changes = await rehearses(context, input)
  if (changes.length === 0) return null
  const resolved = await resolveChanges(context, changes)
  if (named !== undefined)
    return checkNamedRehearsal(await rehearsalNamed(context, named), resolved, caller.at)
  if (required === 'always') {
    if (resolved.takesOnly && rehearsalPlaces.isFull('rehearsal')) return null
    throw new Refusal('rehearsal_required')
  }
  const rehearsing = runRehearsal(context, caller, resolved, windowOf(caller.at), { purpose: 'change' })
  const rehearsed = await (resolved.takesOnly ? rehearsing.catch(ignoreOverload) : rehearsing)
  if (rehearsed === null || rehearsed.totals.newly_refused === 0) return null
  throw new Refusal('rehearsal_required', {
    message: `This would refuse ${rehearsed.totals.newly_refused} calls of the last 30 days that were allowed. Rehearse it, and name the rehearsal in If-Rehearsed.`,
  })
}

/**
 * Rehearses a change that waits for a second operator, who is to see what it would do. Returns the rehearsal's id; null of a
 * change that no rehearsal can describe, or that is about nobody, and where too many rehearse: it waits all the same.
 */
export async function rehearseProposedChange<T extends InputSchemas, Output>(
  { rehearses }: Operation<T, Output>,
  context: AdminContext,
  input: ParsedInput<T>,
  caller: AdminCaller,
): Promise<string | null> {
  const changes = (await rehearses?.(context, input)) ?? []
  const resolved =
    changes.length === 0 ? null : await resolveChanges(context, changes).catch(ignoreUnresolvable)
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
  if (!found) throw new Refusal('not_found', { message: 'There is no rehearsal of this id.' })
  return found
}

function checkNamedRehearsal(found: StoredRehearsal, { text, etags }: ResolvedChanges, at: number): string {
  const stale = (message: string) => new Refusal('precondition_failed', { message })
  if (found.changes !== text) throw stale('This rehearsal is of another change.')
  if (at - Date.parse(found.created_at) > FRESH_MS)
    throw stale('This rehearsal is older than 15 minutes. Rehearse the change again.')
  // Proven by record: an object of texts, written in the order of the changes, which are the same.
  if (found.etags !== JSON.stringify(etags))
    throw stale('What this rehearsal is about has changed since. Rehearse the change again.')
  return found.rehearsal_id
}
