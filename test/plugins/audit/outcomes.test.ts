import { setImmediate as nextTurn } from 'node:timers/promises'
import t from 'tap'
import { Outcomes } from '../../../plugins/audit/audit.ts'
import { commitsInLog, entry, open, rowsOf, scratchDatabase } from '../../support/db/scratch-ledger.ts'

t.test(
  'docs/ledger.md#row: outcomes wait for the next decision, and for nobody once they are flushed',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { delayMs: 3_600_000 })
    t.teardown(ledger.close.bind(ledger))
    await ledger.commit({ entries: [entry({ request_id: 'a' })] })
    const before = commitsInLog(`${file}-wal`)
    const outcomes = new Outcomes(ledger, (error) => t.fail(String(error)))
    outcomes.settle(entry({ request_id: 'a', status: 'success' }))
    // What cannot wait has gone by now.
    await nextTurn()
    await ledger.commit({ entries: [entry({ request_id: 'b' })] })
    t.equal(commitsInLog(`${file}-wal`) - before, 1)
    outcomes.settle(entry({ request_id: 'b', status: 'error' }))
    await outcomes.flushed()
    await outcomes.flushed()
    const rows = rowsOf(file).map(({ request_id: id, status }) => `${id} ${status}`)
    t.same(rows, ['a allowed', 'a success', 'b allowed', 'b error'])
  },
)

t.test('F-05 flushed keeps what the ledger would not take, and ends', async (t) => {
  const ledger = await open(await scratchDatabase(t.testdir()))
  const outcomes = new Outcomes(ledger, (error) => t.fail(String(error)))
  await ledger.close()
  outcomes.settle(entry({ status: 'success' }))
  await outcomes.flushed()
  t.equal(outcomes.owed, 1)
})
