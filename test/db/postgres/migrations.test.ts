import { Kysely, PostgresDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import { Pool } from 'pg'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { migratingConfig } from '../../../db/postgres/connection.ts'
import { MIGRATIONS } from '../../../db/postgres/migrations.ts'
import { TextByBytes } from '../../../db/postgres/text-by-bytes.ts'
import { formerDatabase, formerRows } from '../../support/db/former-ledger.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw } from '../../support/db/postgres/replica.ts'
import { sallyport } from '../../support/run.ts'

const server = await cluster()
const NAMES = Object.keys(MIGRATIONS)
const CAPABILITIES = '0045_principal_capabilities'
const PEOPLE = ['local_user_principals', 'local_workload_principals']

/** Runs the migrations of a database before that one. */
async function before(migration: string, url: string): Promise<void> {
  const dialect = new PostgresDialect({ pool: new Pool(migratingConfig(url)) })
  const db = new Kysely({ dialect, plugins: [new TextByBytes()] })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...MIGRATIONS }) } })
  const { error } = await migrator.migrateTo(NAMES[NAMES.indexOf(migration) - 1] ?? '')
  await db.destroy()
  if (error !== undefined) throw error
}

t.test(
  '§2.1 0045 on PostgreSQL fills the rows that exist with the empty set, and keeps all else',
  async (t) => {
    const url = await server.fresh()
    await before(CAPABILITIES, url)
    const { rows: early } = await raw(
      url,
      `select table_name from information_schema.columns where column_name = 'capabilities'`,
    )
    t.same(early, [{ table_name: 'internal_agents' }], 'agents alone have one')
    const at = '2026-01-01T00:00:00.000Z'
    await raw(
      url,
      `insert into internal_agents (agent_id, name, capabilities, enrollment_method, created_at, updated_at)
     values ('acme::bot', 'bot', '["llm.chat"]', 'minted', '${at}', '${at}')`,
    )
    for (const table of PEOPLE) {
      await raw(
        url,
        `insert into ${table} (principal_id, name, enrollment_method, created_at, updated_at)
       values ('acme::${table}', 'zoe', 'minted', '${at}', '${at}')`,
      )
    }

    const db = await openDatabase(url)
    t.teardown(() => db.close())
    for (const table of PEOPLE) {
      const { rows } = await raw(url, `select * from ${table}`)
      const kept = { principal_id: `acme::${table}`, is_active: 1, created_at: at, authority_revision: 1 }
      t.match(rows, [{ capabilities: '[]', ...kept }])
      const { rows: columns } = await raw(
        url,
        `select data_type, is_nullable, column_default from information_schema.columns
       where table_name = '${table}' and column_name = 'capabilities'`,
      )
      t.match(columns, [{ data_type: 'text', is_nullable: 'NO', column_default: /^'\[\]'/ }], table)
    }
    const agents = await db.kysely.selectFrom('internal_agents').selectAll().execute()
    t.match(agents, [{ agent_id: 'acme::bot', capabilities: '["llm.chat"]', authority_revision: 1 }])
  },
)

t.test('a deployment of 0.6.4 is copied once this version has run on it, and not before', async (t) => {
  const url = await server.fresh()
  const file = await formerDatabase(t.testdir(), formerRows(40))
  const env = { MCP_PROXY_DATA_DIR: t.testdirName }
  const copy = () => sallyport(['copy-database', '--to', url], env)
  t.match(await copy(), { code: 1, err: /another version.*start this version on it once/ })
  await (await openDatabase(`sqlite:${file}`)).close()
  t.match(await copy(), { code: 0, out: /it verifies/ })
  t.match(await sallyport(['verify', url]), { code: 0, out: /40 rows/ })
  const { rows } = await raw(
    url,
    `select leaf::json ->> 'v' as v, count(*)::int from audit_rows group by 1 order by 1`,
  )
  t.same(rows, [
    { v: '1', count: 20 },
    { v: '2', count: 20 },
  ])
})
