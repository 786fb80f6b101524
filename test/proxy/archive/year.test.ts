import { statSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import { pino } from 'pino'
import t from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { archiveBoundary } from '../../../db/ledger/tree/segments.ts'
import { currentTree } from '../../../db/ledger/tree/store.ts'
import { archiveNext } from '../../../proxy/archive/schedule.ts'
import { recordState } from '../../../proxy/proofs/state-recorder.ts'
import { type ArchivedLog, callEntries, openArchivedLog } from '../../support/archive.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { past } from '../../support/db/raw.ts'

/** Days, and rows a day: YEAR_DAYS=90 YEAR_ROWS=100000 YEAR_KEEP=7 node test/proxy/archive/year.test.ts. */
const DAYS = Number(process.env.YEAR_DAYS ?? 12)
const ROWS = Number(process.env.YEAR_ROWS ?? 2_048)
const KEEP = Number(process.env.YEAR_KEEP ?? 3)
/** The day by which there is as much as there will be. */
const FULL = KEEP + 3
const DAY_MS = 86_400_000
const FIRST = Date.parse('2026-01-01T00:00:00.000Z')
const NEVER = new AbortController().signal
t.setTimeout(14_400_000)

const OWN_ROWS = [4, 'a state, a segment and a removal, until they fill a tile of 256'] as const
/** The rows that a table may gain a day, however many calls come, and why. Others may gain none. */
const A_DAY: Readonly<Record<string, readonly [rows: number, why: string]>> = {
  audit_rows: OWN_ROWS,
  audit_log: OWN_ROWS,
  audit_segments: [1, 'where what is archived is'],
  audit_tiles: [1 + ROWS / 65_536, 'of 256 leaves 32 bytes, by which later rows are proven'],
  row_counts: [12, 'the counts of the day, and the minutes of the rows of its archive'],
  spend_counts: [20, 'what each principal has spent on a model, for 400 days'],
}

interface Sizes {
  readonly bytes: number
  readonly tables: Readonly<Record<string, number>>
}

/** Counts the rows of each table, and the bytes of all. */
async function sizesOf({ database: { kysely } }: ArchivedLog, url: string): Promise<Sizes> {
  const tables: Record<string, number> = {}
  for (const { name } of await kysely.introspection.getTables()) {
    const { rows } = await sql<{ n: number }>`select count(*) as n from ${sql.table(name)}`.execute(kysely)
    tables[name] = Number(rows[0]?.n)
  }
  const location = databaseLocation(url)
  if (location.engine === 'sqlite') return { bytes: statSync(location.file).size, tables }
  const { rows } = await sql<{ n: number }>`select pg_database_size(current_database()) as n`.execute(kysely)
  return { bytes: Number(rows[0]?.n), tables }
}

/** Counts rows as the process that leads does. */
async function countAll({ database: { rowCounts }, ledger }: ArchivedLog): Promise<void> {
  for (;;) {
    const from = await rowCounts.counted()
    const portion = await rowCounts.portion(from, 8_192)
    if (portion.place === from) return
    await ledger.commit({ statements: rowCounts.keep(from, portion), entries: [] })
  }
}

t.test(`after ${FULL} days and after ${DAYS} there is as much, and no table grows with calls`, async (t) => {
  const directory = t.testdir({ archive: {} })
  const url = await databaseUrl(directory)
  const log = await openArchivedLog(t, url)
  let now = FIRST
  const given = {
    ...log,
    folder: join(directory, 'archive'),
    clock: () => now,
    location: databaseLocation(url),
    authority: { rootPem: '', intermediatePem: '', rotation: null },
    anchors: () => [],
    log: pino({ level: 'silent' }),
  }
  let call = 0
  let full: Sizes | null = null
  for (let day = 1; day <= DAYS; day += 1) {
    const each = DAY_MS / (ROWS / 2)
    for (let left = ROWS / 2; left > 0; left -= 256) {
      const calls = Math.min(256, left)
      const entries = Array.from({ length: calls }, (_, n) => callEntries(call + n, now + n * each)).flat()
      await log.ledger.commit({ entries })
      call += calls
      now += calls * each
      if (left % 1_024 <= 256) await log.sealer.seal()
    }
    await log.sealer.seal()
    await countAll(log)
    const tree = await currentTree(log.database.kysely)
    if (!tree) throw new Error('there is no tree')
    await recordState(given, { tree: tree.tree, leaf: tree.size - (tree.size % 256) }, NEVER)
    while (await archiveNext(given, KEEP, NEVER)) now += 1
    // What autovacuum does in a day.
    if (ENGINE === 'postgres') await past(url, 'vacuum')
    if (day % 10 === 0 || day === FULL || day === DAYS) {
      const sizes = await sizesOf(log, url)
      t.comment(`day ${day}: ${sizes.bytes} bytes, ${JSON.stringify(sizes.tables)}`)
      if (day === FULL) full = sizes
      if (day !== DAYS || !full) continue
      const growth = sizes.bytes / full.bytes
      t.ok(growth > 0.9 && growth < 1.1, `${growth.toFixed(3)} of the bytes of day ${FULL}`)
      for (const [table, rows] of Object.entries(sizes.tables)) {
        const more = (rows - (full.tables[table] ?? 0)) / (day - FULL)
        t.ok(more <= (A_DAY[table]?.[0] ?? 0.5), `${table}: ${more.toFixed(2)} rows more a day`)
      }
    }
  }
  const { size } = await archiveBoundary(log.database.kysely)
  t.ok(size >= (DAYS - KEEP - 2) * ROWS, `${size} leaves are archived`)
})
