import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { Client } from 'pg'
import t, { type Test } from 'tap'
import { ROWS_PER_READ } from '../../../db/ledger/read/find.ts'
import { exitCodeOf, inspectRows, type LedgerInspection } from '../../../db/ledger/verify/inspect.ts'
import { isSound } from '../../../db/ledger/verify/recompute.ts'
import { GUARD_TRIGGERS } from '../../../db/postgres/ledger/guards.ts'
import { exportPostgres, inspectPostgres } from '../../../db/postgres/ledger/inspect.ts'
import { placedPages } from '../../../db/postgres/ledger/placed-rows.ts'
import { insertRowsQuery } from '../../../db/postgres/ledger/table.ts'
import { chainOf } from '../../support/db/history.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw, replica } from '../../support/db/postgres/replica.ts'
import { chance, sharedHistory } from '../../support/db/postgres/shared-history.ts'
import { exportOf, resealed } from '../../support/db/resealed.ts'
import { exportedRows, streamLines, verifyRows } from '../../support/db/row-by-row.ts'
import { entry } from '../../support/db/scratch-ledger.ts'
import type { Json } from '../../support/gateway.ts'

const server = await cluster()
const SCRIPT = join(import.meta.dirname, '../../../docs/verify.py')

const exported = async (url: string): Promise<string> => (await Array.fromAsync(exportPostgres(url))).join('')

/** What an inspection comes to, in the words that both verifiers have in common. */
const verdictOf = (inspection: LedgerInspection) => {
  const { verdict, authority, findings } = inspection
  const named = authority?.problems ?? (verdict.first_bad ? [verdict.first_bad] : [])
  return { code: exitCodeOf(inspection), findings, at: named.map(({ stream, seq }) => `${stream}:${seq}`) }
}

const ours = async (text: string) =>
  verdictOf(
    await inspectRows(exportedRows(streamLines(Readable.from([Buffer.from(text)]))), { authority: true }),
  )

/** The same of the page's own verifier. */
function theirs(input: string) {
  const args = [SCRIPT, '-', '--authority', '--json']
  const { status, stdout } = spawnSync('python3', args, { input, encoding: 'utf8' })
  const found = JSON.parse(stdout)
  const named: readonly Json[] = found.authority?.problems ?? [found.first_bad]
  return {
    ...{ code: status, findings: found.findings ?? [] },
    at: named.map(({ stream, seq }) => `${stream}:${seq}`),
  }
}

const WHOLE = { code: 0, findings: [], at: [] }

for (const [seed, writers] of [2, 3, 2, 3].entries()) {
  t.test(
    `docs/ledger.md#places every decision of ${writers} replicas at once is recomputed, and follows (seed ${seed})`,
    async (t) => {
      const url = await server.migrated()
      const { decisions, stale } = await sharedHistory(t, url, writers, seed)
      t.comment(`${decisions} decisions, ${stale} came behind a change`)
      const inspection = await inspectPostgres(url, (rows) => rows)
      const { verdict, authority, findings } = inspection
      t.match(verdict, { ok: true, streams: writers + 1 })
      t.same(findings, [])
      t.match(authority, { recomputed: decisions, disagree: 0, not_recomputable: {}, problems: [] })
      t.ok(authority && isSound(authority))
      const text = await exported(url)
      t.same([await ours(text), theirs(text)], [WHOLE, WHOLE])
      await forgeries(t, text, chance(seed))
    },
  )
}

/** What is done to an export by chance is found by both verifiers alike, or by none where it is no contradiction. */
async function forgeries(t: Test, text: string, random: () => number): Promise<void> {
  const rows: readonly Json[] = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  const any = (count: number): number => Math.floor(random() * count)
  const without = (at: number) => rows.toSpliced(at, 1)
  const moved = (at: number, to: number) => without(at).toSpliced(to, 0, rows[at])
  const where = (is: (row: Json, index: number) => boolean): number => {
    const fit = rows.flatMap((row, index) => (is(row, index) ? [index] : []))
    const found = fit[any(fit.length)]
    if (found === undefined) throw new Error('there is no such row in the history')
    return found
  }
  const isDecision = ({ status }: Json) => status === 'allowed' || status === 'denied'
  const decision = where(isDecision)
  // One that nothing rests on may be left out: that is a change that was never made.
  const change = where(
    ({ action, detail }, at) =>
      action === 'agent.capabilities_patched' &&
      rows.slice(at).some((row) => isDecision(row) && row.principal_id === detail.subject),
  )
  const outcome = where(({ status }) => status === 'unknown')
  const [firstStream] = rows.map(({ stream }) => stream)
  const late = rows.findLastIndex(
    ({ principal_id: id, status }) => id === rows[change]?.detail.subject && status !== 'success',
  )
  const { detail } = structuredClone(rows[decision])
  detail.authority.revision += random() < 0.5 ? 1 : -1
  const cases: Readonly<Record<string, readonly Json[]>> = {
    'a line is removed': without(any(rows.length - 1)),
    'a line is moved': moved(any(rows.length), any(rows.length)),
    'a line is there twice': rows.toSpliced(any(rows.length), 0, rows[any(rows.length)]),
    'a decision names another revision': resealed(rows.with(decision, { ...rows[decision], detail })),
    'a decision says the other thing': resealed(rows.with(decision, turned(rows[decision]))),
    'a change is left out': resealed(without(change)),
    'a change is put behind what rests on it': resealed(moved(change, late)),
    'an outcome is left out': resealed(without(outcome)),
    'an outcome is there twice': resealed([...rows, rows[outcome]]),
    'the first row of all is left out': resealed(without(0)),
    'the first row of the second stream is left out': resealed(
      without(rows.findIndex(({ stream }) => stream !== firstStream)),
    ),
  }
  for (const [name, forged] of Object.entries(cases)) {
    const made = exportOf(forged)
    const [here, there] = [await ours(made), theirs(made)]
    t.same(here, there, name)
    if (FOUND.test(name)) t.not(here.code, 0, `${name}: found`)
    if (name.startsWith('the first row'))
      t.match(here, { code: 2, findings: [/^stream r\w{16} does not begin with service\.started$/] })
  }
}

const FOUND = /^a decision|^a change|^an outcome is there twice|^the first row/

function turned(row: Json): Json {
  const { reason, required_capability: _, ...detail } = row.detail
  if (row.status === 'denied') return { ...row, status: 'allowed', detail }
  const refused = { reason: 'capability_missing', required_capability: 'llm.chat' }
  return { ...row, status: 'denied', detail: { ...row.detail, ...refused } }
}

/** Ends the guards for the statements, as the owner of the table can. */
const asOwner = (url: string, statements: string) =>
  raw(
    url,
    `alter table audit_rows disable trigger user; ${statements};
    ${TRIGGER_NAMES.map((name) => `alter table audit_rows enable always trigger ${name}`).join(';')}`,
  )

const TRIGGER_NAMES = Object.keys(GUARD_TRIGGERS)

/** Gives two rows the places of each other. */
const swapped = (one: string, other: string): string => `
  create temporary table two as select stream, seq, place from audit_rows where (${one}) or (${other});
  update audit_rows r set place = -r.place from two where r.place = two.place;
  update audit_rows r set place = b.place from two a, two b where r.place = -a.place and a.place <> b.place`

t.test('T12 places that are spoiled do not hide a row, and what they contradict is found', async (t) => {
  const url = await server.migrated()
  await sharedHistory(t, url, 2, 7)
  await raw(url, 'alter table audit_rows alter column place drop identity')
  const found = async () => verdictOf(await inspectPostgres(url, (rows) => rows))
  t.match(await inspectPostgres(url, (rows) => rows), { findings: [/column place is missing/] })
  const streams = '(select min(stream) from audit_rows)'
  const within = swapped(`stream = ${streams} and seq = 2`, `stream = ${streams} and seq = 4`)
  await asOwner(url, within)
  t.same((await found()).code, 2, 'two rows of one stream')
  t.same(await ours(await exported(url)), theirs(await exported(url)))
  await asOwner(url, within)
  const decided =
    "(select place from audit_rows where status in ('allowed', 'denied') order by place limit 1)"
  // Behind all: whatever its stream has, its row is not the next one there any more.
  await asOwner(url, `update audit_rows set place = 1e9 where place = ${decided}`)
  t.same((await found()).code, 2, 'a row behind all others')
  await asOwner(url, `update audit_rows set place = 0 where place = 1e9`)
  t.not((await found()).code, 0, 'a row before all others')
  await asOwner(url, 'alter table audit_rows alter column place drop not null')
  await asOwner(url, 'update audit_rows set place = null where place = (select max(place) from audit_rows)')
  t.match((await inspectPostgres(url, (rows) => rows)).verdict, { ok: false })
  await t.rejects(exported(url))
})

t.test('docs/ledger.md#places what is read while others write is whole', async (t) => {
  const url = await server.migrated()
  const { database, ledger } = await replica(t, url)
  await ledger.commit({ entries: Array.from({ length: ROWS_PER_READ - 1 }, () => entry()) })
  const other = await slowTransaction(t, url)
  const rows = chainOf([entry(), entry()])
  await other.query(insertRowsQuery(rows.slice(0, 1)))
  await ledger.commit({ entries: [entry()] })
  await other.query(insertRowsQuery(rows.slice(1)))
  await ledger.commit({ entries: [entry()] })
  const pages = placedPages(database.kysely, new AbortController().signal)
  const { value: first = [] } = await pages.next()
  t.equal(first.length, ROWS_PER_READ, 'its last row stands between the two of the other')
  await other.query('commit')
  const found = [...first, ...(await Array.fromAsync(pages)).flat()]
  t.match(await verifyRows(found), { ok: true, rows: ROWS_PER_READ + 1, streams: 1 })
})

async function slowTransaction(t: Test, url: string): Promise<Client> {
  const client = new Client(url)
  await client.connect()
  t.teardown(() => client.end())
  await client.query('begin')
  return client
}
