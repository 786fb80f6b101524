import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { AuthorityChanges } from '../../../db/authority-moves.ts'
import { CommitInDoubt } from '../../../db/ledger/record/entry.ts'
import { openLedger } from '../../../db/ledger/record/ledger.ts'
import type { LedgerWriter } from '../../../db/ledger/record/writer.ts'
import { openSqliteWriter } from '../../../db/sqlite/ledger/thread.ts'
import { OutcomeWriter } from '../../../plugins/audit/audit.ts'
import {
  commitsInLog,
  entry,
  open,
  reader,
  rowsOf,
  scratchDatabase,
  VERSION,
} from '../../support/db/scratch-ledger.ts'

t.test(
  'docs/ledger.md#row: outcomes wait for the next decision, and for nobody once they are flushed',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file, { delayMs: 3_600_000 })
    t.teardown(ledger.close.bind(ledger))
    await ledger.commit({ entries: [entry({ request_id: 'a' })] })
    const before = commitsInLog(`${file}-wal`)
    const outcomes = new OutcomeWriter(ledger, await reader(t, file), (error) => t.fail(String(error)))
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
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  const outcomes = new OutcomeWriter(ledger, await reader(t, file), (error) => t.fail(String(error)))
  await ledger.close()
  outcomes.settle(entry({ status: 'success' }))
  await outcomes.flushed()
  t.equal(outcomes.owed, 1)
})

/** Loses the database in the middle of a commit, when it is stored or before, as often as it is told to. */
async function doubtful(t: Test, stored: boolean) {
  const file = await scratchDatabase(t.testdir())
  const writer = await openSqliteWriter(file)
  const told = { losses: 0 }
  const unsure: LedgerWriter = {
    stream: writer.stream,
    head: writer.head,
    lost: writer.lost,
    unfinished: () => writer.unfinished(),
    close: () => writer.close(),
    write: async (batch) => {
      if (told.losses === 0) return writer.write(batch)
      told.losses -= 1
      if (stored) await writer.write(batch)
      throw new CommitInDoubt('the server is gone')
    },
  }
  const ledger = await openLedger({
    database: { openWriter: async () => unsure, authority: new AuthorityChanges() },
    version: VERSION,
  })
  t.teardown(ledger.close.bind(ledger))
  const outcomes = new OutcomeWriter(ledger, await reader(t, file), (error) => t.fail(String(error)))
  return { file, ledger, outcomes, told }
}

for (const stored of [true, false]) {
  const how = stored ? 'stored' : 'not stored'
  await t.test(
    `F-08 an outcome that was ${how} when the database was lost in its commit is one row`,
    async (t) => {
      const { file, ledger, outcomes, told } = await doubtful(t, stored)
      await ledger.commit({ entries: [entry({ request_id: 'a' })] })
      // Whatever is retried may be lost again.
      told.losses = 2
      outcomes.settle(entry({ request_id: 'a', status: 'success' }))
      await outcomes.flushed()
      t.equal(outcomes.owed, 1)
      for (let tries = 0; tries < 3; tries += 1) {
        outcomes.retry()
        await outcomes.flushed()
      }
      t.equal(outcomes.owed, 0)
      t.same(
        rowsOf(file).map(({ status }) => status),
        ['allowed', 'success'],
      )
    },
  )

  await t.test(
    `F-08 a decision that was ${how} when the database was lost in its commit is left open by nobody`,
    async (t) => {
      const { file, ledger, outcomes, told } = await doubtful(t, stored)
      told.losses = 1
      const refused = await ledger
        .commit({ entries: [entry({ request_id: 'a' })] })
        .catch((error: unknown) => error)
      t.match(refused, { code: 'unavailable', inDoubt: true })
      outcomes.settleInDoubt(entry({ request_id: 'a', status: 'error' }))
      outcomes.retry()
      await outcomes.flushed()
      t.equal(outcomes.owed, 0)
      t.same(
        rowsOf(file).map(({ status }) => status),
        stored ? ['allowed', 'error'] : [],
      )
    },
  )

  await t.test(
    `docs/ledger.md#prices: a price whose row was ${how} when the database was lost stands before its first cost`,
    async (t) => {
      const { file, ledger, outcomes, told } = await doubtful(t, stored)
      const ids = ['a', 'b', 'c']
      for (const id of ids) await ledger.commit({ entries: [entry({ request_id: id })] })
      const prices = new Map([['0123456789abcdef', { price: '0123456789abcdef', rates: {} }]])
      const settle = (id: string) =>
        outcomes.settle(entry({ request_id: id, status: 'success' }), 0, { prices })
      told.losses = 1
      settle('a')
      await outcomes.flushed()
      settle('b')
      await outcomes.flushed()
      outcomes.retry()
      await outcomes.flushed()
      settle('c')
      await outcomes.flushed()
      const rows = rowsOf(file).slice(ids.length)
      t.equal(rows[0]?.action, 'price.stated', 'before the first outcome')
      t.equal(
        rows.filter(({ status, action }) => status === 'success' && action !== 'price.stated').length,
        3,
      )
      t.equal(rows.at(-2)?.action === 'price.stated', false, 'one that is durable is not stated again')
    },
  )
}
