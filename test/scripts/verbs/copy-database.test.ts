import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type SQLite from 'better-sqlite3'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { listRows } from '../../../db/ledger/read/read.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw } from '../../support/db/postgres/replica.ts'
import { withRaw } from '../../support/db/scratch-ledger.ts'
import { testGateway } from '../../support/gateway.ts'
import { verbsInTurn } from '../../support/verbs-in-turn.ts'

const sallyport = verbsInTurn(t)

const server = await cluster()
/** Whatever the engine of this run is. */
const ON_SQLITE = { MCP_PROXY_DATABASE_URL: '', MCP_PROXY_KEY_PASSPHRASE: '' }
const CHAT = { model: 'gpt-5-mini', messages: [] }

t.test('a deployment is moved from SQLite to PostgreSQL, and its agents notice nothing', async (t) => {
  const url = await server.fresh()
  const before = await testGateway(t, { settings: ON_SQLITE })
  const { dataDir } = before.settings
  const bot = await before.enroll('bot', ['llm.chat'])
  t.equal((await before.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  const env = { MCP_PROXY_DATA_DIR: dataDir }
  t.match(await sallyport(['copy-database', '--to', url], env), { code: 1, err: /stop it first/ })
  await before.close()
  t.match(await sallyport(['copy-database', '--to', url], env), { code: 0, out: /it verifies/ })
  t.match(await sallyport(['verify', url]), { code: 0 })
  t.match(await sallyport(['copy-database', '--to', url], env), { code: 1, err: /already in use/ })

  const passphrase = readFileSync(join(dataDir, 'key-passphrase'), 'utf8').trim()
  const settings = { MCP_PROXY_DATABASE_URL: url, MCP_PROXY_KEY_PASSPHRASE: passphrase }
  const first = await testGateway(t, { settings: { ...settings, MCP_PROXY_DATA_DIR: dataDir } })
  t.equal((await first.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
  // Another one, on a data directory of its own, has the CA from the database.
  const second = await testGateway(t, { settings, ownCa: true })
  t.equal(second.ca, first.ca)
  t.equal((await second.call(bot, 'POST', '/v1/chat/completions', { body: CHAT })).status, 200)
})

t.test('a copy that was interrupted goes on where it stopped', async (t) => {
  const url = await server.fresh()
  const gateway = await testGateway(t, { settings: ON_SQLITE })
  await gateway.enroll('bot', ['llm.chat'])
  await gateway.close()
  const env = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
  // The tables come last: here they cannot be written, so what stays behind is the ledger alone.
  await (await openDatabase(url)).close()
  await raw(
    url,
    "create function no() returns trigger language plpgsql as $$begin raise exception 'the power is cut'; end$$",
  )
  await raw(url, 'create trigger no before insert on mcp_bindings for each statement execute function no()')
  await raw(url, 'create trigger no2 before delete on mcp_bindings for each statement execute function no()')
  t.match(await sallyport(['copy-database', '--to', url], env), { code: 1, err: /the power is cut/ })
  const { rows: left } = await raw(url, 'select count(*)::int as count from audit_rows')
  t.ok(left[0].count > 0)
  await raw(url, 'drop function no() cascade')
  t.match(await sallyport(['copy-database', '--to', url], env), { code: 0 })
  const database = await openDatabase(url)
  t.teardown(() => database.close())
  t.match(await listRows(database.kysely, { action: 'agent.created' }), { rows: [{ stream: 'main' }] })
})

t.test('the ledger of another deployment is not mixed in', async (t) => {
  const url = await server.fresh()
  for (const wanted of [0, 1]) {
    const gateway = await testGateway(t, { settings: ON_SQLITE })
    await gateway.close()
    const env = { MCP_PROXY_DATA_DIR: gateway.settings.dataDir }
    const { code, err } = await sallyport(['copy-database', '--to', url], env)
    t.equal(code, wanted)
    if (wanted === 1) t.match(err, /of another deployment/)
  }
  t.match(await sallyport(['copy-database', '--to', 'sqlite:x']), { code: 1, err: /postgres:/ })
})

t.test('a copy has each row of each table, whichever tables this version has', async (t) => {
  const url = await server.fresh()
  const gateway = await testGateway(t, { settings: ON_SQLITE, editsTables: true })
  await gateway.close()
  const { dataDir } = gateway.settings
  /** Made anew from the copied rows, or said of the database itself. */
  const own = /^(audit|kysely|row_counts|spend_counts|sqlite)_?/
  const tables = withRaw(join(dataDir, 'sallyport.db'), (db) => {
    const names = db.prepare<[], string>("select name from sqlite_schema where type = 'table'").pluck().all()
    const copied = names.filter((name) => !own.test(name))
    db.pragma('foreign_keys = off')
    for (const table of copied) fillRow(db, table)
    return copied.toSorted()
  })
  t.match(await sallyport(['copy-database', '--to', url], { MCP_PROXY_DATA_DIR: dataDir }), { code: 0 })
  const counted = await Promise.all(
    tables.map(async (table) => [
      table,
      (await raw(url, `select count(*)::int as count from ${table}`)).rows[0].count,
    ]),
  )
  t.same(
    counted.filter(([, count]) => count === 0),
    [],
  )
  t.ok(tables.length > 20)
})

/** Puts a row into a table that has none: of each column's own type, alike in those that refer to others. */
function fillRow(db: SQLite.Database, table: string): void {
  if (db.prepare(`select 1 from ${table}`).get()) return
  const columns = db
    .prepare<[], { name: string; type: string }>(`select name, type from pragma_table_info('${table}')`)
    .all()
  const values = columns.map(({ type }) => (/int/i.test(type) ? 1 : 'x'))
  db.prepare(
    `insert into ${table} (${columns.map(({ name }) => `"${name}"`).join(', ')}) values (${values.map(() => '?').join(', ')})`,
  ).run(...values)
}
