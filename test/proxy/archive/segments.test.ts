import { sql } from 'kysely'
import t from 'tap'
import { listRows } from '../../../db/ledger/read/read.ts'
import { archiveBoundary, countPlaces, newestSegment } from '../../../db/ledger/tree/segments.ts'
import { isTreeAsSigned } from '../../../db/ledger/tree/store.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { noteEntry } from '../../../plugins/audit/entries.ts'
import { removeSegment } from '../../../proxy/archive/remove.ts'
import { archiveUpTo, commitUpTo, openArchivedLog, recordCalls } from '../../support/archive.ts'
import { databaseUrl, ENGINE } from '../../support/db/engine.ts'
import { past } from '../../support/db/raw.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'

const place = ENGINE === 'sqlite' ? 'seq' : 'place'

/** A segment as a statement of anybody puts it there. The columns that are not named are those of the next one. */
function segment(columns: Readonly<Record<string, string | number>> = {}): string {
  const detail = (name: string): string =>
    ENGINE === 'sqlite' ? `detail ->> '${name}'` : `detail::json ->> '${name}'`
  const all: Readonly<Record<string, string | number>> = {
    ...{ first: `cast(${detail('first')} as bigint)`, last: `cast(${detail('last')} as bigint)` },
    ...{ last_place: `(select ${place} from audit_rows order by ${place} limit 1 offset 511)` },
    ...{ sha256: detail('sha256'), state: detail('state'), file: detail('file') },
    ...{ bytes: 1, since: "'2026'", until: "'2026'", stream: 'stream', seq: 'seq', ...columns },
  }
  return `insert into audit_segments (${Object.keys(all).join(', ')}) select ${Object.values(all).join(', ')} from audit_log
    where action = 'ledger.archived'`
}

t.test('a segment is taken if it is the next one, sealed, and a committed row says it', async (t) => {
  const url = await databaseUrl(t.testdir())
  const log = await openArchivedLog(t, url)
  await recordCalls(log, 400)
  await log.sealer.seal()
  const detail = { first: 0, last: 511, sha256: '12'.repeat(32), state: '34'.repeat(32), file: '0-511.zip' }
  await past(url, segment())
  t.equal((await archiveBoundary(log.database.kysely)).size, 0, 'there is no row that says so')
  await log.ledger.commit({
    entries: [noteEntry({ action: 'ledger.archived', detail }, AT, log.configDigest())],
  })
  const refused: readonly Readonly<Record<string, string | number>>[] = [
    { last: 255 },
    { last: 510 },
    { last: 1_023 },
    { first: 256 },
    { first: -256 },
    { last_place: `(select ${place} from audit_rows order by ${place} limit 1 offset 512)` },
    { last_place: `(select ${place} from audit_rows order by ${place} limit 1 offset 510)` },
    { last_place: 1_000_000 },
    { sha256: "'ab'" },
    { state: "'ab'" },
    { file: "'elsewhere.zip'" },
    { seq: 'seq - 1' },
    { stream: "'another'" },
    { removed_at: "'2026'" },
    { confirmed_at: "'2026'" },
  ]
  for (const columns of refused)
    await t.rejects(past(url, segment(columns)), /takes only the next segment/, JSON.stringify(columns))
  await past(url, segment())
  t.match(await newestSegment(log.database.kysely), { first: 0, last: 511, removed_at: null })
  for (const statement of [
    segment(),
    'delete from audit_segments',
    'update audit_segments set last = 767',
    'update audit_segments set last_place = last_place + 1',
    "update audit_segments set sha256 = ''",
    'update audit_segments set seq = seq + 1',
    ...(ENGINE === 'postgres'
      ? ['truncate audit_segments', 'set session_replication_role = replica; delete from audit_segments']
      : [segment().replace('insert', 'insert or replace')]),
  ])
    await t.rejects(past(url, statement), /takes only the next segment/, statement)
})

t.test('rows go up to the boundary of a segment and no further, and none is changed', async (t) => {
  const url = await databaseUrl(t.testdir())
  const log = await openArchivedLog(t, url)
  await recordCalls(log, 400)
  await log.sealer.seal()
  await t.rejects(
    past(url, `delete from audit_rows where ${place} <= 1`),
    /append-only/,
    'nothing is archived',
  )
  await commitUpTo(log, 511)
  const { place: boundary } = await archiveBoundary(log.database.kysely)
  const newest = await log.database.rowCounts.last()
  for (const statement of [
    `delete from audit_rows where ${place} = ${boundary + 1}`,
    `delete from audit_rows where ${place} in (1, ${boundary + 1})`,
    `delete from audit_rows where ${place} = ${newest}`,
    'delete from audit_rows',
    `update audit_rows set status = 'denied' where ${place} = 1`,
    `update audit_rows set seq = seq + 1000 where ${place} = 1`,
    ...(ENGINE === 'postgres'
      ? ['truncate audit_rows', 'set session_replication_role = replica; delete from audit_rows']
      : []),
  ])
    await t.rejects(past(url, statement), /append-only/, statement)
  await past(
    url,
    ENGINE === 'sqlite'
      ? `delete from audit_rows where seq <= ${boundary}`
      : 'select audit_rows_remove(0, 1000000), audit_rows_remove_checkpoints(1, 1000000)',
  )
  t.equal(await countPlaces(log.database, 0, newest), newest - boundary)
})

t.test('a removal that was cut goes on, and leaves the newest row of each stream', async (t) => {
  const url = await databaseUrl(t.testdir())
  const log = await openArchivedLog(t, url)
  await recordCalls(log, 2_000)
  await log.sealer.seal()
  await commitUpTo(log, 3_839)
  const segment = await newestSegment(log.database.kysely)
  if (!segment) throw new Error('nothing is archived')
  const answers = [true, true, true]
  const cut = { ...log, goesOn: () => answers.pop() ?? false }
  t.equal(await removeSegment(cut, segment), false)
  const left = await countPlaces(log.database, 0, segment.last_place)
  t.ok(left > 0 && left < 3_840, `${left} rows are left`)
  t.equal(await removeSegment(log, segment), true)
  t.equal(await countPlaces(log.database, 0, segment.last_place), 0)
  t.match(await newestSegment(log.database.kysely), { removed_at: timestamp(AT) })
  t.match((await listRows(log.database.kysely, { action: 'ledger.removed' })).rows, [
    { detail: { first: 0, last: 3_839, rows: 3_840 } },
  ])
  const { kysely } = log.database
  t.match(
    await kysely.selectFrom('audit_tiles').select(['level', 'n']).orderBy('level').orderBy('n').execute(),
    [
      { level: 0, n: 15 },
      { level: 1, n: 0 },
    ],
  )
  const { size } =
    (await kysely.selectFrom('audit_checkpoints').select('size').orderBy('size').executeTakeFirst()) ?? {}
  t.ok((size ?? 0) > 3_840, 'nothing below the boundary is signed any more')
  await recordCalls(log, 10)
  await log.sealer.seal()
  t.match(await isTreeAsSigned(log.database), { isWhole: true })
  await t.rejects(removeSegment(log, segment), { code: 'conflict' }, 'and not twice')
})

t.test('a call that is open for longer than rows are kept has its decision until it has ended', async (t) => {
  const log = await openArchivedLog(t, await databaseUrl(t.testdir()))
  const { kysely } = log.database
  const opened = (n: number) => entry({ request_id: `req_open${n}`, at: AT })
  await log.ledger.commit({ entries: [opened(1), opened(2)] })
  await recordCalls(log, 400)
  await log.ledger.commit({ entries: [opened(3)] })
  const removeUpTo = async (last: number): Promise<readonly (string | null)[]> => {
    await log.sealer.seal()
    await archiveUpTo(log, last)
    const { last_place: boundary = 0 } = (await newestSegment(kysely)) ?? {}
    const left = sql<{
      id: string | null
    }>`select request_id as id from audit_rows where ${sql.ref(place)} <= ${boundary}`
    return (await left.execute(kysely)).rows.map(({ id }) => id)
  }
  t.same(await removeUpTo(511), ['req_open1', 'req_open2'])
  t.match((await listRows(kysely, { action: 'ledger.removed' })).rows, [{ detail: { rows: 510 } }])
  await log.ledger.commit({ entries: [{ ...opened(2), status: 'success', detail: { status: 200 } }] })
  await recordCalls(log, 400, 400)
  t.same(await removeUpTo(1_279), ['req_open1', 'req_open3'], 'what has ended is gone')
  await log.sealer.seal()
  t.match(await isTreeAsSigned(log.database), { isWhole: true })
})

t.test('counts of archived minutes and hours go, those of days stay', async (t) => {
  const log = await openArchivedLog(t, await databaseUrl(t.testdir()))
  const { kysely, rowCounts } = log.database
  await recordCalls(log, 400)
  const spans = Array.from({ length: 3_000 }, (_, n) => new Date(AT - n * 60_000).toISOString().slice(0, 16))
  const counts = spans.map((span) => ({ span, action: 'egress_llm_chat', status: 'allowed', rows: 1 }))
  const from = await rowCounts.counted()
  await log.ledger.commit({
    statements: rowCounts.keep(from, { counts, spends: [], place: from + 1 }),
    entries: [],
  })
  const of = async (): Promise<Readonly<Record<string, number>>> => {
    const all = await kysely.selectFrom('row_counts').select(['level', 'row_count']).execute()
    const levels = Object.groupBy(all, ({ level }) => level)
    return Object.fromEntries(
      Object.entries(levels).map(([level, rows = []]) => [
        level,
        rows.reduce((sum, row) => sum + row.row_count, 0),
      ]),
    )
  }
  t.same(await of(), { 10: 3_000, 13: 3_000, 15: 3_000, 16: 3_000 })
  await log.sealer.seal()
  await archiveUpTo(log, 511)
  // The present minute, ten minutes and hour may have rows that stay.
  t.match(await of(), { 10: 3_000, 16: 1 })
  const left = await kysely.selectFrom('row_counts').select('span').where('level', '>', 10).execute()
  t.equal(left.length, 3)
})

t.test(
  'a stream that was silent for long can be gone on with',
  { skip: ENGINE === 'sqlite' && 'it has one stream' },
  async (t) => {
    const url = await databaseUrl(t.testdir())
    const log = await openArchivedLog(t, url)
    const silent = await openArchivedLog(t, url)
    await recordCalls(silent, 5)
    await recordCalls(log, 400, 5)
    await log.sealer.seal()
    await commitUpTo(log, 511)
    await t.rejects(
      past(url, `delete from audit_rows where stream = '${silent.ledger.head?.stream}'`),
      /append-only/,
    )
    const segment = await newestSegment(log.database.kysely)
    if (segment) await removeSegment(log, segment)
    t.match(
      await log.database.kysely
        .selectFrom('audit_log')
        .select(['stream', 'seq'])
        .orderBy('place' as 'seq')
        .limit(1)
        .execute(),
      [silent.ledger.head && { stream: silent.ledger.head.stream, seq: silent.ledger.head.seq }],
    )
    await recordCalls(silent, 5, 405)
    await log.sealer.seal()
    t.match(await isTreeAsSigned(log.database), { isWhole: true })
  },
)
