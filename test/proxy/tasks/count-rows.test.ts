import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import t, { type Test } from 'tap'
import type { Database } from '../../../db/database.ts'
import { openDatabase } from '../../../db/engine.ts'
import { COUNT_LEVELS } from '../../../db/ledger/counts/row-counts.ts'
import type { LedgerReader } from '../../../db/ledger/read/reader.ts'
import { type Ledger, openLedger } from '../../../db/ledger/record/ledger.ts'
import { sqliteRowCounts } from '../../../db/sqlite/ledger/tree-rows.ts'
import { countRows } from '../../../proxy/tasks/count-rows.ts'
import { countsOfRows, keptCounts, keptSpends, spendsOfRows, sums } from '../../support/db/counts.ts'
import { databaseUrl, skipWithoutFile } from '../../support/db/engine.ts'
import { allRows } from '../../support/db/history.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'
import { eventually } from '../../support/settled.ts'
import { runWithFault, withoutStrace } from '../../support/strace.ts'

t.setTimeout(120_000)

const PROGRAM = join(import.meta.dirname, '../../support/db/count-until-killed.ts')
const MINUTE_MS = 60_000
const NEVER = new AbortController().signal

interface Counting {
  readonly database: Database
  readonly ledger: Ledger
}

async function counting(t: Test, url: string): Promise<Counting> {
  const database = await openDatabase(url)
  const ledger = await openLedger({ database, version: '0.6.4' })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  return { database, ledger }
}

/** Counts until nothing is left: on PostgreSQL a process leads a moment after it has asked. */
async function countAll({ database, ledger }: Counting): Promise<void> {
  const task = countRows({ database, ledger, clock: () => AT })
  const last = await database.rowCounts.last()
  const counted = async (): Promise<number> => {
    await task.run()
    return database.rowCounts.counted()
  }
  await eventually(counted, (place) => place >= last, 30_000)
  await task.stop()
}

async function exact(t: Test, { database }: Pick<Counting, 'database'>): Promise<void> {
  const rows = []
  for await (const row of allRows(database)) if (!('damaged' in row)) rows.push(row)
  t.same(await keptCounts(database), countsOfRows(rows))
  t.same(await keptSpends(database), spendsOfRows(rows))
}

const VARIED = Array.from({ length: 3_000 }, (_, n) =>
  entry({
    at: AT + n * 41_000,
    action: n % 5 === 0 ? 'mcp_tools_call' : 'egress_llm_chat',
    status: n % 7 === 0 ? 'denied' : 'allowed',
  }),
)

await t.test('rows are counted once each, in portions, at every level of time', async (t) => {
  const of = await counting(t, await databaseUrl(t.testdir()))
  for (let from = 0; from < VARIED.length; from += 500)
    await of.ledger.commit({ entries: VARIED.slice(from, from + 500) })
  await countAll(of)
  await exact(t, of)
  const before = await keptCounts(of.database)
  await countAll(of)
  t.same(await keptCounts(of.database), before, 'and nothing where no row has come')
})

await t.test(
  'a window is the same whether its rows are counted already, in part, or not at all',
  async (t) => {
    const of = await counting(t, await databaseUrl(t.testdir()))
    const { rowCounts } = of.database
    await of.ledger.commit({ entries: VARIED.slice(0, 512) })
    await of.ledger.commit({ entries: VARIED.slice(512, 1_000) })
    const windows = COUNT_LEVELS.map((level) => ({
      level,
      since: new Date(AT + 100 * MINUTE_MS).toISOString().slice(0, level),
      until: new Date(AT + 400 * MINUTE_MS).toISOString().slice(0, level),
    }))
    const seen = async () =>
      Promise.all(windows.map(async (window) => sums((await rowCounts.within(window, NEVER)).counts)))
    const uncounted = await seen()
    const [, , tens] = uncounted
    t.ok((tens?.['egress_llm_chat allowed'] ?? 0) > 100)
    const portion = await rowCounts.portion(0, 300)
    await of.ledger.commit({ statements: rowCounts.keep(0, portion), entries: [] })
    t.ok((await rowCounts.counted()) > 0)
    t.same(await seen(), uncounted)
    await countAll(of)
    t.same(await seen(), uncounted)
  },
)

await t.test('what is too much to count for one question is left out, and it is said how much', async (t) => {
  const of = await counting(t, await databaseUrl(t.testdir()))
  for (let batch = 0; batch < 20; batch += 1)
    await of.ledger.commit({ entries: Array.from({ length: 500 }, () => entry()) })
  const window = { level: 10, since: '2026-01-02', until: '2026-01-03' } as const
  const part = await of.database.rowCounts.within(window, NEVER)
  t.equal(part.uncounted, 10_000 - 8_192)
  t.same(sums(part.counts), { 'egress_llm_chat allowed': 8_192 })
  await countAll(of)
  const whole = await of.database.rowCounts.within(window, NEVER)
  t.same([sums(whole.counts), whole.uncounted], [{ 'egress_llm_chat allowed': 10_000 }, 0])
})

await t.test('two that count at once count no row twice', async (t) => {
  const url = await databaseUrl(t.testdir())
  const of = await counting(t, url)
  const { rowCounts } = of.database
  await of.ledger.commit({ entries: VARIED.slice(0, 400) })
  const [one, other] = [await rowCounts.portion(0, 100), await rowCounts.portion(0, 200)]
  const keep = (portion: typeof one) =>
    of.ledger.commit({ statements: rowCounts.keep(0, portion), entries: [] })
  await keep(one)
  await t.rejects(keep(other), { code: 'conflict' })
  await countAll(of)
  await exact(t, of)
})

await t.test(
  'a few new rows are counted without the thread that reads',
  { skip: skipWithoutFile },
  async (t) => {
    const { database, ledger } = await counting(t, await databaseUrl(t.testdir()))
    await ledger.commit({ entries: VARIED.slice(0, 400) })
    const asked: number[] = []
    const reader: Pick<LedgerReader, 'portion'> = {
      portion: (after) => {
        asked.push(after)
        return database.rowCounts.portion(after, 1)
      },
    }
    const rowCounts = sqliteRowCounts(database.kysely, reader as LedgerReader)
    const { counts, place } = await rowCounts.portion(370, 1_024)
    t.same([counts.reduce((sum, { rows }) => sum + rows, 0), place, asked], [30, 400, []])
    await rowCounts.portion(0, 1_024)
    t.same(asked, [0])
  },
)

await t.test('kill -9 while rows are written and counted: each is counted once', async (t) => {
  const url = await databaseUrl(t.testdir())
  for (const enough of [0, 9]) {
    const child = spawn(process.execPath, [PROGRAM, url, '10000'], { stdio: ['ignore', 'pipe', 'inherit'] })
    const ended = once(child, 'exit')
    let lines = 0
    for await (const _ of createInterface({ input: child.stdout })) {
      lines += 1
      if (lines > enough) child.kill('SIGKILL')
    }
    t.equal((await ended)[1], 'SIGKILL')
    const database = await openDatabase(url)
    const ledger = await openLedger({ database, version: '0.6.4' })
    await countAll({ database, ledger })
    await exact(t, { database })
    await ledger.close()
    await database.close()
  }
})

await t.test(
  'killed at any write, a process leaves counts that the next one goes on with',
  { skip: skipWithoutFile || withoutStrace() },
  async (t) => {
    const directory = t.testdir()
    const url = await databaseUrl(directory)
    let killed = 0
    for (const nth of [3, 4, 5, 6, 7]) {
      const fault = { call: 'fsync,fdatasync', fault: 'KILL', nth, log: join(directory, 'strace') } as const
      const { injected } = await runWithFault([PROGRAM, url, '4'], fault)
      if (injected) killed += 1
      const database = await openDatabase(url)
      const ledger = await openLedger({ database, version: '0.6.4' })
      await countAll({ database, ledger })
      await exact(t, { database })
      await ledger.close()
      await database.close()
    }
    t.ok(killed >= 3, `${killed} of them were killed`)
  },
)
