import { join } from 'node:path'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import type { Database } from '../../../../db/database.ts'
import { databaseLocation, openDatabase } from '../../../../db/engine.ts'
import { readCursors, rewindCursor } from '../../../../db/ledger/cursors/cursors.ts'
import { followLedger, type LedgerFollower, noteFailing } from '../../../../db/ledger/cursors/follow.ts'
import { HeadWatch } from '../../../../db/ledger/cursors/heads.ts'
import { type LedgerLine, rowOfLine } from '../../../../db/ledger/cursors/line.ts'
import { MAX_PAGE_BYTES, MAX_PAGE_ROWS } from '../../../../db/ledger/read/stream-page.ts'
import { type Ledger, openLedger } from '../../../../db/ledger/record/ledger.ts'
import { archiveRows } from '../../../../proxy/archive/archive.ts'
import { recordState } from '../../../../proxy/proofs/state-recorder.ts'
import { archiveUpTo, openArchivedLog, recordCalls } from '../../../support/archive.ts'
import { databaseUrl, ENGINE } from '../../../support/db/engine.ts'
import { AT, entry, VERSION } from '../../../support/db/scratch-ledger.ts'

t.setTimeout(120_000)

const NEVER = new AbortController().signal
const clock = (): number => AT

interface Following {
  readonly database: Database
  readonly ledger: Ledger
}

async function following(t: Pick<Test, 'teardown'>, url: string): Promise<Following> {
  const database = await openDatabase(url)
  const ledger = await openLedger({ database, version: VERSION })
  t.teardown(async () => {
    await ledger.close()
    await database.close()
  })
  return { database, ledger }
}

/** A reader that keeps what it takes. */
class Taker implements LedgerFollower {
  readonly name: string
  readonly from: LedgerFollower['from']
  readonly names = false
  readonly pages: LedgerLine[][] = []
  /** Called before a page is taken. */
  before: (page: readonly LedgerLine[]) => Promise<void> = () => Promise.resolve()

  constructor(name = 'lake', from: LedgerFollower['from'] = 'start') {
    this.name = name
    this.from = from
  }

  async take(page: readonly LedgerLine[]): Promise<void> {
    await this.before(page)
    this.pages.push([...page])
  }

  get seqs(): readonly string[] {
    return this.pages.flat().map(({ stream, seq }) => `${stream}:${seq}`)
  }
}

/** Takes what is there, with a new look at the heads. A reader that is new begins with the first of two. */
async function follow(of: Following, taker: LedgerFollower, signal = NEVER): Promise<void> {
  const begun = (await readCursors(of.database, taker.name)).begun
  const dependencies = { ...of, clock, heads: new HeadWatch(of.database) }
  if (!begun) await followLedger(dependencies, taker, signal)
  await followLedger(dependencies, taker, signal)
}

const range = (stream: string, first: number, last: number): readonly string[] =>
  Array.from({ length: last - first + 1 }, (_, n) => `${stream}:${first + n}`)

/** Notes one row of so many bytes and more. */
const noted = (n: number, bytes = 0) => entry({ request_id: null, detail: { n, padding: padding(bytes) } })
const padding = (bytes: number): readonly string[] =>
  Array.from({ length: Math.ceil(bytes / 1_000) }, () => 'x'.repeat(1_000))

const streamOf = ({ ledger }: Following): string => ledger.head?.stream ?? ''

t.test('docs/exports.md#cursors: each row comes once, in order, in pages of 500 rows or 1 MiB', async (t) => {
  const of = await following(t, await databaseUrl(t.testdir()))
  const entries = Array.from({ length: 1_203 }, (_, n) => noted(n, n < 40 ? 50_000 : 0))
  for (let from = 0; from < entries.length; from += 300)
    await of.ledger.commit({ entries: entries.slice(from, from + 300) })
  const taker = new Taker()
  await follow(of, taker)
  t.same(taker.seqs, range(streamOf(of), 1, 1_203))
  const sizes = taker.pages.map((page) =>
    page.reduce((sum, { line }) => sum + Buffer.byteLength(line) + 1, 0),
  )
  t.ok(
    sizes.every((bytes) => bytes <= MAX_PAGE_BYTES),
    'no page has more bytes',
  )
  t.ok(
    taker.pages.every(({ length }) => length <= MAX_PAGE_ROWS),
    'nor more rows',
  )
  t.match(taker.pages.flat().map(rowOfLine).at(-1), { seq: 1_203, detail: { n: 1_202 } })
  await follow(of, taker)
  t.equal(taker.seqs.length, 1_203, 'and nothing where no row has come')
})

t.test('a reader from now gets the rows after its beginning, of streams that begin later too', async (t) => {
  const url = await databaseUrl(t.testdir())
  const first = await openDatabase(url)
  const of = await following(t, url)
  await of.ledger.commit({ entries: [noted(1), noted(2)] })
  const taker = new Taker('new', 'now')
  await follow(of, taker)
  t.same(taker.seqs, [])
  await of.ledger.commit({ entries: [noted(3)] })
  const expected = range(streamOf(of), 3, 3)
  if (ENGINE === 'postgres') {
    const other = await openLedger({ database: first, version: VERSION })
    await other.commit({ entries: [noted(4), noted(5)] })
    const { stream = '' } = other.head ?? {}
    await other.close()
    await follow(of, taker)
    t.same(taker.seqs.toSorted(), [...expected, ...range(stream, 1, other.head?.seq ?? 0)].toSorted())
  } else {
    await follow(of, taker)
    t.same(taker.seqs, expected)
  }
  await first.close()
})

t.test('the cursor moves when a page is taken, and not before', async (t) => {
  const of = await following(t, await databaseUrl(t.testdir()))
  for (let n = 0; n < 3; n += 1)
    await of.ledger.commit({ entries: Array.from({ length: 400 }, () => noted(n)) })
  const taker = new Taker()
  const stream = streamOf(of)
  taker.before = async (page) => {
    if (page.some(({ seq }) => seq === 501)) throw new Error('the disk is full')
  }
  await t.rejects(follow(of, taker), { message: 'the disk is full' })
  t.equal((await readCursors(of.database, 'lake')).places.get(stream), 500)
  await noteFailing({ ...of, clock }, taker, 'the disk is full')
  await noteFailing({ ...of, clock: () => AT + 60_000 }, taker, 'it is fuller')
  t.same((await readCursors(of.database, 'lake')).failure, {
    ...{ since: new Date(AT).toISOString(), error: 'it is fuller' },
  })
  taker.before = () => Promise.resolve()
  await follow(of, taker)
  t.same(taker.seqs, range(stream, 1, 1_200))
  t.equal((await readCursors(of.database, 'lake')).failure, null)
})

t.test('a cursor that another process has moved stops a reader, which then goes on from there', async (t) => {
  const of = await following(t, await databaseUrl(t.testdir()))
  for (let n = 0; n < 3; n += 1)
    await of.ledger.commit({ entries: Array.from({ length: 400 }, () => noted(n)) })
  const taker = new Taker()
  const stream = streamOf(of)
  taker.before = async (page) => {
    if (page.some(({ seq }) => seq === 501))
      await of.ledger.commit({
        statements: rewindCursor(of.database, 'lake', { stream, seq: 101 }, AT),
        entries: [],
      })
  }
  await t.rejects(follow(of, taker), { code: 'conflict' })
  taker.before = () => Promise.resolve()
  await follow(of, taker)
  t.same(taker.seqs, [...range(stream, 1, 1_000), ...range(stream, 101, 1_200)], 'at least once, in order')
})

t.test('a signal ends it between two pages', async (t) => {
  const of = await following(t, await databaseUrl(t.testdir()))
  for (let n = 0; n < 3; n += 1)
    await of.ledger.commit({ entries: Array.from({ length: 400 }, () => noted(n)) })
  const taker = new Taker()
  const stopping = new AbortController()
  taker.before = async () => stopping.abort()
  await t.rejects(follow(of, taker, stopping.signal), { name: 'AbortError' })
  t.equal(taker.seqs.length, 500)
})

const archiving = { authority: { rootPem: '', intermediatePem: '', rotation: null }, anchors: () => [] }

t.test(
  'rows that were archived are read in their segments, and without these a sentence says so',
  async (t) => {
    const directory = t.testdir({ archive: {} })
    const url = await databaseUrl(directory)
    const log = await openArchivedLog(t, url)
    await recordCalls(log, 400)
    await log.sealer.seal()
    await recordState({ ...log, log: pino({ level: 'silent' }) }, { tree: 1, leaf: 512 }, NEVER)
    const folder = join(directory, 'archive')
    const given = { ...log, ...archiving, folder, location: databaseLocation(url) }
    await archiveRows({ ...given, log: pino({ level: 'silent' }) }, 511, NEVER)
    const { database } = log
    const taker = new Taker()
    const [{ stream, head } = { stream: '', head: 0 }] = await new HeadWatch(database).read()
    await t.rejects(follow(log, taker), /the rows \S+:1 to \S+:512 cannot be read\. .* 0-511\S*: no folder/)
    t.same(taker.seqs, [], 'nothing is left out by itself')
    database.archive.path = folder
    await follow(log, taker)
    t.same(taker.seqs, range(stream, 1, head))
    t.equal((await readCursors(database, 'lake')).leaves, 512, 'it does not look there again')
    await log.ledger.commit({
      statements: rewindCursor(database, 'lake', { stream, seq: 510 }, AT),
      entries: [],
    })
    taker.pages.length = 0
    await follow(log, taker)
    t.same(taker.seqs.slice(0, head - 509), range(stream, 510, head), 'and back into them')
  },
)

t.test('a rewind leaves out rows that nobody has any more', async (t) => {
  const directory = t.testdir({ archive: {} })
  const log = await openArchivedLog(t, await databaseUrl(directory))
  await recordCalls(log, 400)
  await log.sealer.seal()
  await archiveUpTo(log, 511)
  const taker = new Taker()
  const [{ stream, head } = { stream: '', head: 0 }] = await new HeadWatch(log.database).read()
  log.database.archive.path = join(directory, 'archive')
  await t.rejects(follow(log, taker), /Bring them back, or rewind to \S+:513/)
  await log.ledger.commit({
    statements: rewindCursor(log.database, 'lake', { stream, seq: 513 }, AT),
    entries: [],
  })
  await follow(log, taker)
  t.same(taker.seqs, range(stream, 513, head))
})
