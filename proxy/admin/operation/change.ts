import { setTimeout as sleep } from 'node:timers/promises'
import { type LedgerEntry, LedgerError } from '../../../db/ledger/record/entry.ts'
import type { LedgerStatement, RowAssertion } from '../../../db/support/statement.ts'
import { type AuditNote, noteEntry } from '../../../plugins/audit/entries.ts'
import { Refusal, type RefusalReason } from '../../../plugins/refusal.ts'
import type { AdminContext, ChangeAuthorship } from './context.ts'

interface AuditedChange extends AuditNote {
  readonly statements: readonly LedgerStatement[]
  /** Conditions of storing it, in addition to the authority of its author. */
  readonly assertions?: readonly RowAssertion[]
}

export const changeAuthor = ({ at, actor }: ChangeAuthorship) => ({ at, by: actor.id })

/** Makes a change and its one audit row in one transaction, as {@link commitChanges} does. */
export function commitChange(
  context: AdminContext,
  author: ChangeAuthorship,
  { statements, assertions = [], ...note }: AuditedChange,
  duplicate: RefusalReason = 'conflict',
): Promise<void> {
  return commitChanges(context, author, { statements, assertions, notes: [note] }, duplicate)
}

interface AuditedChanges {
  readonly statements: readonly LedgerStatement[]
  readonly assertions?: readonly RowAssertion[]
  /** The notes, one for each row. */
  readonly notes: readonly AuditNote[]
}

/**
 * Makes a change and its audit rows in one transaction (spec §6, docs/ledger.md#actions). Refuses with
 * `duplicate`; `precondition_failed` if the object has moved on; `overloaded` if the author's authority has,
 * for the change to be sent again; `audit_unavailable`.
 */
export async function commitChanges(
  { ledger, configDigest }: AdminContext,
  author: ChangeAuthorship,
  { statements, assertions = [], notes }: AuditedChanges,
  duplicate: RefusalReason = 'conflict',
): Promise<void> {
  const { actor, rowDetail, confirmation } = author
  const confirming = confirmation?.stored ? undefined : confirmation
  const more = { via: actor.via, ...rowDetail, ...confirming?.detail }
  const entries = notes.map((note) =>
    changeEntry({ ...note, detail: { ...note.detail, ...more } }, author, configDigest),
  )
  try {
    await ledger.commit({
      assertions: [...actor.standing, ...assertions],
      statements: confirming ? [confirming.statement, ...statements] : statements,
      entries: confirming ? [...entries, confirming.entry] : entries,
    })
  } catch (error) {
    throw commitRefusal(error, duplicate)
  }
  if (confirming) confirming.stored = true
}

/** Makes the row of a change, or of its confirmation. */
export const changeEntry = (
  note: AuditNote,
  { id, at, actor }: ChangeAuthorship,
  configDigest: string,
): LedgerEntry => ({
  ...noteEntry(note, at, configDigest),
  request_id: id,
  principal_id: actor.id,
  principal_type: actor.type,
})

function commitRefusal(error: unknown, duplicate: RefusalReason): unknown {
  if (!(error instanceof LedgerError)) return error
  if (error.code === 'duplicate') return new Refusal(duplicate, { cause: error })
  if (error.code === 'stale')
    return new Refusal('overloaded', { cause: error, headers: { 'retry-after': '1' } })
  if (error.code === 'conflict') return new Refusal('precondition_failed', { cause: error })
  return new Refusal('audit_unavailable', { cause: error, headers: { 'retry-after': '1' } })
}

/**
 * The time for tries when others change the same object. Within a process changes wait in line, so contenders
 * are other processes, and one with little time of a processor loses many times. ms.
 */
const PATIENCE_MS = 5_000
/** The time by which the pause before a try may grow with each, and the longest. ms. */
const PAUSE_MS = 4
const MAX_PAUSE_MS = 100

/**
 * Reads and changes an object, and again if another change came between. Refuses with `precondition_failed`
 * after {@link PATIENCE_MS}; a refusal of `read` is final.
 */
export async function retryIfOvertaken<Read, Made>(
  read: () => Promise<Read>,
  write: (found: Read) => Promise<Made>,
): Promise<Made> {
  const end = performance.now() + PATIENCE_MS
  for (let attempt = 1; ; attempt += 1) {
    const found = await read()
    try {
      return await write(found)
    } catch (error) {
      if (!isOvertaken(error) || performance.now() > end) throw error
      // A pause by chance: two that go in step would overtake each other for ever.
      await sleep(Math.random() * Math.min(attempt * PAUSE_MS, MAX_PAUSE_MS))
    }
  }
}

/** Tells a change that was refused because the object has moved on since it was read. */
export const isOvertaken = (error: unknown): boolean =>
  error instanceof Refusal && error.reason === 'precondition_failed'
