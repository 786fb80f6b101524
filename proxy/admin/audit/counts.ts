import { z } from 'zod'
import { COUNT_LEVELS } from '../../../db/ledger/counts/counted.ts'
import { operation } from '../operation/operation.ts'
import { throwLedgerRefusal } from './audit.ts'

/** Counts the rows of a window by action, status and spans of time. For dashboards; no route has it. */
export const countAudit = operation({
  name: 'countAudit',
  demands: 'admin.audit',
  action: 'admin.read',
  summary: 'Counts the rows of a window of time by action and status.',
  takes: {
    query: z.strictObject({
      level: z.literal(COUNT_LEVELS),
      since: z.string().max(32),
      until: z.string().max(32),
    }),
  },
  output: z.strictObject({
    counts: z.array(
      z.strictObject({ span: z.string(), action: z.string(), status: z.string(), rows: z.int() }),
    ),
    uncounted: z.int(),
  }),
  status: 200,
  reasons: [],
  run: async ({ database, ledgerPlaces }, { query }, caller) => {
    const { counts, uncounted } = await ledgerPlaces.run('pages', caller, () =>
      database.rowCounts.within(query, caller.hangup.signal).catch(throwLedgerRefusal),
    )
    return { value: { counts: [...counts], uncounted } }
  },
})
