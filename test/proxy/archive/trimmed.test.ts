import { randomBytes } from 'node:crypto'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { sql } from 'kysely'
import { pino } from 'pino'
import t, { type Test } from 'tap'
import { databaseLocation, openDatabase } from '../../../db/engine.ts'
import { archiveBoundary } from '../../../db/ledger/tree/segments.ts'
import { NO_LOG_TRUST } from '../../../db/ledger/tree/trusted.ts'
import { exitCodeOf } from '../../../db/ledger/verify/inspect.ts'
import { inspectPostgres } from '../../../db/postgres/ledger/inspect.ts'
import { inspectDatabase } from '../../../db/sqlite/ledger/inspect.ts'
import { archiveRows } from '../../../proxy/archive/archive.ts'
import { inspectPack } from '../../../scripts/verifying/inspect-pack.ts'
import { openZip } from '../../../scripts/verifying/zip.ts'
import { openLog } from '../../support/archive.ts'
import { certifiedUser } from '../../support/certs/certified.ts'
import { started } from '../../support/db/history.ts'
import { CHAT, type Identity, type TestGateway, testGateway } from '../../support/gateway.ts'
import { mcpStage, tool, toolServer } from '../../support/mcp/stage.ts'
import { eventually } from '../../support/settled.ts'

const CALLS = 140

/** Calls, and waits until their rows are sealed. Returns the id of the first one. */
async function calls(gateway: TestGateway, who: Identity): Promise<string> {
  let first = ''
  for (let n = 0; n < CALLS; n += 20) {
    const some = Array.from({ length: 20 }, () =>
      gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT }),
    )
    for (const { status, headers } of await Promise.all(some)) {
      if (status !== 200) throw new Error(`a call was answered with ${status}`)
      first ||= String(headers['x-request-id'])
    }
  }
  await eventually(
    async () => (await gateway.admin('GET', '/v1/admin/audit/log')).json.unsealed,
    (unsealed) => unsealed === 0,
  )
  return first
}

/** Archives the sealed rows of a gateway that has stopped, as many as go, once so many of the rows before are left. */
async function archive(t: Test, { dataDir, databaseUrl }: TestGateway['settings']): Promise<void> {
  const after: (() => unknown)[] = []
  const log = await openLog(
    { teardown: (work: () => unknown) => void after.push(work) } as never,
    databaseUrl,
    Date.now,
  )
  await log.ledger.commit({ entries: [started] })
  const { size } = await log.database.kysely
    .selectFrom('audit_trees')
    .select('size')
    .executeTakeFirstOrThrow()
  const [folder, authority] = [join(dataDir, 'archive'), { rootPem: '', intermediatePem: '', rotation: null }]
  mkdirSync(folder, { recursive: true, mode: 0o700 })
  const given = { ...log, folder, authority, location: databaseLocation(databaseUrl), anchors: () => [] }
  const last = size - (size % 256) - 1
  await archiveRows({ ...given, log: pino({ level: 'silent' }) }, last, new AbortController().signal)
  t.equal((await archiveBoundary(log.database.kysely)).size, last + 1)
  for (const work of after) await work()
}

const verified = ({ databaseUrl }: TestGateway['settings']) => {
  const location = databaseLocation(databaseUrl)
  return location.engine === 'sqlite'
    ? inspectDatabase(location.file, Date.now(), (rows) => rows)
    : inspectPostgres(location.url, (rows) => rows)
}

/** The members of all segments, inflated, by their names. */
async function textsInSegments({ dataDir }: TestGateway['settings']): Promise<readonly [string, string][]> {
  const folder = join(dataDir, 'archive')
  const texts: [string, string][] = []
  for (const file of readdirSync(folder).filter((name) => name.endsWith('.zip'))) {
    const zip = await openZip(join(folder, file))
    for (const name of zip.names) texts.push([name, (await zip.bytes(name, 1e9)).toString('latin1')])
    zip.close()
  }
  return texts
}

/** Counts the rows of each table. */
async function tableSizes({
  databaseUrl,
}: TestGateway['settings']): Promise<Readonly<Record<string, number>>> {
  const database = await openDatabase(databaseUrl)
  const sizes: Record<string, number> = {}
  for (const { name } of await database.kysely.introspection.getTables()) {
    const { rows } = await sql<{ n: number }>`select count(*) as n from ${sql.table(name)}`.execute(
      database.kysely,
    )
    sizes[name] = Number(rows[0]?.n)
  }
  await database.close()
  return sizes
}

/** The tables that grow while calls come, but not with each. */
const GROWS_BY_OTHERS: Readonly<Record<string, string>> = {
  audit_log: 'the view of audit_rows',
  audit_rows: 'the rows behind the last tile, some hundred at most',
  audit_segments: 'a row for each',
  row_counts: 'by the minutes in which there are calls',
}

t.test('a gateway lives on what is left, and what is left verifies', { timeout: 240_000 }, async (t) => {
  const gateway = await mcpStage(t, { verify: false })
  const { settings } = gateway
  const bot = await gateway.enroll('bot', ['llm.chat', 'mcp.tools.call'])
  const person = `zoe-${randomBytes(6).toString('hex')}`
  const { who, ref } = await certifiedUser(t, gateway, { user_name: person, display_name: `Zoe ${person}` })
  await gateway.call(who, 'POST', '/v1/chat/completions', { body: CHAT })
  t.match((await gateway.admin('GET', '/v1/admin/audit/export')).text, person, 'whoever reads it is told')
  await gateway.bind(bot, await gateway.register('files', await toolServer(t, [tool('read')])))
  const old = await calls(gateway, bot)
  await gateway.close(0)
  await archive(t, settings)
  for (const [file, text] of await textsInSegments(settings)) {
    t.notOk(text.includes(person), `${file} names no person, who could not be erased from it`)
    if (file === 'rows.ndjson') t.ok(text.includes(ref), 'the pseudonym is there')
  }
  const found = await verified(settings)
  t.match(found, { verdict: { ok: true }, findings: [], authority: { disagree: 0 }, tree: { problems: [] } })
  t.equal(exitCodeOf(found), 0)
  t.match(found.notes[0], /^not read: \d+ rows in 1 segment of the archive$/)

  const again = await mcpStage(t, { verify: false, settings: { MCP_PROXY_DATA_DIR: settings.dataDir } })
  t.match((await again.callTool(bot, 'files.read')).json, { result: {} }, 'its rows are archived')
  const id = await calls(again, bot)
  const read = (path: string) => again.call(bot, 'GET', path)
  t.match((await read(`/v1/audit/proofs/${id}`)).json, { rows: [{ proof: String }, { proof: String }] })
  for (const path of ['tile/0/000', 'checkpoint?size=1', `proofs/${old}`])
    t.match(
      await read(`/v1/audit/${path}`),
      {
        status: 404,
        json: { error: { message: /archived.* in 0-\d+\.zip/ } },
      },
      path,
    )
  const secret = { 'x-admin-secret': 'correct-horse-battery' }
  t.match(await again.call(null, 'GET', '/v1/audit/tile/entries/000', { headers: secret }), { status: 404 })
  t.match((await again.admin('POST', '/v1/admin/audit/verify')).json, { ok: true })
  t.match((await again.admin('GET', `/v1/admin/audit?request_id=${id}`)).json.rows, [{}, {}])
  t.match((await again.admin('GET', `/v1/admin/audit?request_id=${old}`)).json.rows, [])
  const exported = (await again.admin('GET', '/v1/admin/audit/export')).text.split('\n')
  t.ok(exported.length > 2 * CALLS)
  const rehearsed = (await again.admin('POST', '/v1/admin/rehearsals', { changes: [] })).json
  t.match(rehearsed, { disagreements: 0, totals: { newly_refused: 0, newly_allowed: 0 } })
  t.ok(rehearsed.unchanged >= CALLS)
  t.match(JSON.stringify(rehearsed), /calls up to \S+, which are archived and not counted here/)
  const pack = join(settings.dataDir, 'pack.zip')
  writeFileSync(pack, (await again.admin('GET', '/v1/admin/audit/evidence')).bytes)
  t.match(await inspectPack(pack, (rows) => rows, NO_LOG_TRUST), {
    ...{ verdict: { ok: true }, findings: [], cutShort: null },
    ...{ authority: { disagree: 0 }, tree: { problems: [], cutShort: null } },
  })
  await again.close(0)
  await archive(t, settings)
  t.equal(exitCodeOf(await verified(settings)), 0)

  const before = await tableSizes(settings)
  const third = await testGateway(t, { verify: false, settings: { MCP_PROXY_DATA_DIR: settings.dataDir } })
  await calls(third, bot)
  await third.close(0)
  await archive(t, settings)
  for (const [table, rows] of Object.entries(await tableSizes(settings))) {
    const growth = (rows - (before[table] ?? 0)) / CALLS
    t.comment(`${table}: ${growth.toFixed(3)} rows a call`)
    if (GROWS_BY_OTHERS[table] === undefined) t.ok(growth < 0.1, table)
  }
})
