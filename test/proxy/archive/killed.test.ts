import { spawn } from 'node:child_process'
import { hash } from 'node:crypto'
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { databaseLocation } from '../../../db/engine.ts'
import { countPlaces, listSegments, newestSegment } from '../../../db/ledger/tree/segments.ts'
import { NO_LOG_TRUST } from '../../../db/ledger/tree/trusted.ts'
import { exitCodeOf } from '../../../db/ledger/verify/inspect.ts'
import { inspectPostgres } from '../../../db/postgres/ledger/inspect.ts'
import { inspectDatabase } from '../../../db/sqlite/ledger/inspect.ts'
import { inspectArchive } from '../../../scripts/verifying/archive.ts'
import { SILENT } from '../../../scripts/verifying/progress.ts'
import { type ArchivedLog, openArchivedLog, openLog } from '../../support/archive.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { note, started } from '../../support/db/history.ts'
import { server } from '../../support/db/postgres/server.ts'
import { killingAt } from '../../support/killed-at.ts'
import { BY_A_TENTH } from '../../support/lanes.ts'
import { NODE_COMPILE_CACHE } from '../../support/run.ts'
import { sweepPlaces, WHOLE_SWEEP } from '../../support/sweep-places.ts'

/** Some seventy writes are on the way of a segment: a whole sweep tries each. */
const APART = BY_A_TENTH ? 25 : 12
/** Each way is killed at least so often: by TEST_SWEEP=full a thousand times in all, or twice TEST_KILLS. */
const MIN_KILLS = WHOLE_SWEEP ? Number(process.env.TEST_KILLS ?? 500) : 1
/** Kills between two reports. */
const REPORTED = 50
t.setTimeout(WHOLE_SWEEP ? 14_400_000 : 300_000)

/** The newest row of each stream stays: on PostgreSQL each process before has had one. */
const STREAMS_LEFT = ENGINE === 'sqlite' ? 0 : 4

const [FIRST, SECOND] = [511, 1_535]
const SCRIPT = join(import.meta.dirname, '../../support/archive-once.ts')

/** Runs the way of a segment in a process of its own. Resolves with its exit code, null if it was killed. */
function archived(url: string, folder: string, last: number, at: string): Promise<number | null> {
  const killing = killingAt(at)
  const child = spawn(process.execPath, [...killing.args, SCRIPT, url, folder, String(last)], {
    env: { PATH: process.env.PATH ?? '', NODE_COMPILE_CACHE, ...killing.env },
    stdio: ['ignore', 'ignore', 'inherit'],
  })
  return new Promise((resolve) => child.once('close', resolve))
}

/** Opens a log, and closes it behind the work. */
async function withLog<Result>(
  url: string,
  work: (log: ArchivedLog) => Promise<Result>,
  open: typeof openLog = openLog,
): Promise<Result> {
  const after: (() => unknown)[] = []
  const log = await open({ teardown: (end: () => unknown) => void after.push(end) } as never, url)
  try {
    return await work(log)
  } finally {
    for (const end of after) await end()
  }
}

async function recordNotes({ ledger, sealer }: ArchivedLog): Promise<void> {
  await ledger.commit({ entries: [started] })
  await ledger.commit({ entries: Array.from({ length: 900 }, (_, n) => note('audit.reviewed', { n })) })
  await sealer.seal()
}

/** Verifies folder and database as `verify --archive` does. Returns the rows of both. */
async function verified(t: Test, url: string, folder: string, name: string): Promise<number> {
  const location = databaseLocation(url)
  const archive = await inspectArchive(folder, SILENT, () => NO_LOG_TRUST)
  const shown = (rows: Parameters<typeof archive.said.watched>[0]) => archive.said.watched(rows)
  const rest =
    location.engine === 'sqlite'
      ? await inspectDatabase(location.file, Date.now(), shown)
      : await inspectPostgres(location.url, shown)
  t.same([rest.findings, rest.verdict.first_bad, rest.tree?.problems], [[], undefined, []], name)
  const inspections = [...archive.segments.map(({ inspection }) => inspection), rest]
  t.same(
    inspections.map(exitCodeOf),
    inspections.map(() => 0),
    name,
  )
  t.same([...archive.findings, ...archive.said.findings(archive)], [], name)
  return inspections.reduce((sum, { verdict }) => sum + verdict.rows, 0)
}

/** What is so whenever the process ends: the rows are there, or a file that a row names has them. */
async function nothingIsLost(t: Test, url: string, folder: string, name: string): Promise<void> {
  await withLog(url, async ({ database }) => {
    const segments = await listSegments(database.kysely)
    for (const { file, sha256 } of segments)
      t.equal(hash('sha256', readFileSync(join(folder, file))), sha256, `${name}: ${file}`)
    const { last_place: after = 0, last = -1 } = segments.at(-1) ?? {}
    const { size } = await database.kysely.selectFrom('audit_trees').select('size').executeTakeFirstOrThrow()
    const left = await countPlaces(database, after, await database.rowCounts.last())
    t.ok(left >= size - last - 1, `${name}: ${left} rows are behind leaf ${last}, and ${size} are sealed`)
  })
}

/** A ledger of which so many leaves are archived. Returns what makes a copy of it. */
async function stage(t: Test, before: number | null) {
  const made = join(t.testdir({ made: { archive: {} } }), 'made')
  const template = await databaseUrl(made)
  await withLog(template, recordNotes, openArchivedLog)
  if (before !== null) {
    t.equal(await archived(template, join(made, 'archive'), before, join(made, 'never')), 0)
    await withLog(template, recordNotes)
  }
  return async (name: string) => {
    const own = join(made, '..', name)
    cpSync(made, own, { recursive: true })
    const url = ENGINE === 'sqlite' ? await databaseUrl(own) : await (await server()).fresh(template)
    return { url, own, folder: join(own, 'archive') }
  }
}

const countOf = async ({ database }: ArchivedLog, action: string): Promise<number> =>
  (await database.kysely.selectFrom('audit_log').select('seq').where('action', '=', action).execute()).length

for (const [what, before, last] of [
  ['the first segment', null, FIRST],
  ['a segment behind another', FIRST, SECOND],
] as const)
  t.test(`killed at any write, ${what} goes on, and each row is in one place`, async (t) => {
    const copy = await stage(t, before)
    let killed = 0
    for (let round = 0; killed < MIN_KILLS; round += 1) {
      const already = killed
      for (const nth of sweepPlaces(APART)) {
        const name = `${round}-${nth}`
        const { url, own, folder } = await copy(name)
        const at = join(own, 'kill-at')
        writeFileSync(at, String(nth))
        const code = await archived(url, folder, last, at)
        await nothingIsLost(t, url, folder, name)
        rmSync(at)
        if (code === null) t.equal(await archived(url, folder, last, at), 0, `${name}: it goes on`)
        else t.equal(code, 0, name)
        const rows = await withLog(url, async (log) => {
          const [all, said] = [await log.database.rowCounts.last(), await countOf(log, 'ledger.archived')]
          t.equal(said, 1, `${name}: one row says so`)
          const { last_place: boundary = 0 } = (await newestSegment(log.database.kysely)) ?? {}
          const left = await countPlaces(log.database, 0, boundary)
          t.ok(left <= STREAMS_LEFT, `${name}: ${left} rows are left below the boundary`)
          return all
        })
        const seen = await verified(t, url, folder, name)
        if (ENGINE === 'sqlite') t.equal(seen, rows, `${name}: no row is lost, or proven twice`)
        t.notOk(
          readdirSync(folder).some((file) => file.endsWith('.part')),
          `${name}: nothing half-written`,
        )
        rmSync(own, { recursive: true })
        if (code !== null) break
        killed += 1
        if (killed % REPORTED === 0) t.comment(`killed ${killed} times`)
      }
      if (killed === already) break
    }
    t.ok(killed > 0, `it was killed ${killed} times`)
  })
