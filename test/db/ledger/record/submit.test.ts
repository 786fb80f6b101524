import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import type { LedgerUnit } from '../../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../../db/ledger/record/ledger.ts'
import { entry, open, rowsOf, scratchDatabase } from '../../../support/db/scratch-ledger.ts'

const THROWER = join(import.meta.dirname, '../../../support/db/throw-when-told.ts')

const row: LedgerUnit = { entries: [entry()] }
const stale: LedgerUnit = { ...row, assertions: [{ sql: 'select 1 where 0', parameters: [] }] }
const unstorable: LedgerUnit = { entries: [entry({ detail: { n: 0.5 } })] }

/** Submits a unit, notes in `told` what it is told, and resolves then. */
const submit = (ledger: Ledger, unit: LedgerUnit, told: unknown[]): Promise<void> =>
  new Promise((resolve) => {
    ledger.submit(unit, (error, sealed) => {
      told.push(error === null ? sealed.map(({ seq }) => seq) : 'code' in error ? error.code : error.name)
      resolve()
    })
  })

t.test(
  'docs/ledger.md#appending: each unit is told once, in the order of the rows, and never before submit returns',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    const told: unknown[] = []
    const two: LedgerUnit = { entries: [entry(), entry()] }
    const asked = [row, stale, two, { ...row, lazy: true }, unstorable].map((unit) =>
      submit(ledger, unit, told),
    )
    t.same(told, [], 'nobody is told in the turn of the submission, refused or not')
    await Promise.all(asked)
    t.same(told, ['TypeError', [1], 'stale', [2, 3], [4]])
    await ledger.close()
    const late = submit(ledger, row, told)
    t.equal(told.length, 5)
    await late
    t.equal(told.at(-1), 'closed')
    t.equal(rowsOf(file).length, 4)
  },
)

t.test('docs/ledger.md#appending: a unit that was told counts as waiting no more', async (t) => {
  const ledger = await open(await scratchDatabase(t.testdir()), { queueLimit: 1 })
  const next = Promise.withResolvers<unknown>()
  ledger.submit(row, () => {
    t.equal(ledger.waiting, 0)
    ledger.submit(row, (error, sealed) => next.resolve(error ?? sealed[0]?.seq))
  })
  t.equal(await next.promise, 2, 'so whoever was told has room for another one')
  await ledger.close()
})

t.test(
  'docs/ledger.md#appending: what one throws when told reaches the process, once the others were told',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const { stdout } = await promisify(execFile)(process.execPath, [THROWER, file])
    t.same(JSON.parse(stdout), [null, 2, null, 3, 'a fault of whoever was told', 4])
    t.equal(rowsOf(file).length, 4)
  },
)
