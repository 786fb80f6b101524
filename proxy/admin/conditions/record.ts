import { hash, randomBytes } from 'node:crypto'
import type { z } from 'zod'
import { deleteRehearsals, insertRehearsal } from '../../../db/rehearsal/store.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { commitChange } from '../operation/change.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import type { ResolvedChanges } from './resolve.ts'
import type { ChangePreview, rehearsalShape } from './view.ts'
import { DEFAULT_WINDOW_MS } from './window.ts'

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
