import { Kysely, PostgresDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import { Pool } from 'pg'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import { migratingConfig } from '../../../db/postgres/connection.ts'
import { BytewiseTextPlugin, POSTGRES_MIGRATIONS } from '../../../db/postgres/database.ts'
import { formerDatabase, formerRows } from '../../support/db/former-ledger.ts'
import { chainOf, changed, decided, ended, JKT, loaded, note, started } from '../../support/db/history.ts'
import { CAPABILITIES as HELD, TABLES } from '../../support/db/ledger-with-tables.ts'
import { cluster } from '../../support/db/postgres/cluster.ts'
import { raw } from '../../support/db/postgres/replica.ts'
import { withRaw } from '../../support/db/scratch-ledger.ts'
import { sallyport } from '../../support/run.ts'

const server = await cluster()
const NAMES = Object.keys(POSTGRES_MIGRATIONS)
const CAPABILITIES = '0045_principal_capabilities'
const PEOPLE = ['local_user_principals', 'local_workload_principals']

/** Runs the migrations of a database before that one. */
async function before(migration: string, url: string): Promise<void> {
  const dialect = new PostgresDialect({ pool: new Pool(migratingConfig(url)) })
  const db = new Kysely({ dialect, plugins: [new BytewiseTextPlugin()] })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...POSTGRES_MIGRATIONS }) } })
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

/** What 0.6.4 finds: rows of version 1, the last of them a call that the upgrade interrupted. */
const FORMER = [
  started,
  changed('agent.created', 1),
  changed('workload.created', 1, { subject: 'acme::workload::job' }),
  note('mcp_resource.created', { subject: 'mcpr_1' }),
  note('ca.attached', { kind: 'spiffe', digests: ['ca1'] }),
  decided(1),
  ended(decided(1)),
  decided(2),
]
/** What it adds in rows of version 2. */
const call = decided(3, { dpop_jkt: JKT, authority: { revision: 2 } })
const SINCE = [
  { ...ended(decided(2)), status: 'unknown' },
  started,
  loaded(),
  changed('authority.snapshot', 2, {
    capabilities: HELD,
    dpop_jkts: [[JKT, null]],
    bindings: [['mcpb_1', 'mcpr_1']],
  }),
  call,
  ended(call),
]
const ROWS = [...FORMER, ...SINCE]
const VERSIONS = ROWS.map((_, index) => (index < FORMER.length ? 1 : 2))
const lasting = (count: number) => chainOf(ROWS.slice(0, count), VERSIONS)

/** Deployments of 0.6.4, by how many rows have which version, and what verifying them comes to. */
const DEPLOYMENTS = {
  'that wrote no row of version 2 yet': { rows: lasting(FORMER.length), versions: [8], code: 0 },
  'that was upgraded once': { rows: lasting(ROWS.length), versions: [8, 6], code: 0 },
  'whose decisions name no authority': { rows: formerRows(40), versions: [20, 20], code: 5 },
}

for (const [which, { rows, versions, code }] of Object.entries(DEPLOYMENTS)) {
  t.test(
    `a deployment of 0.6.4 ${which} is copied once this version has run on it, and verifies the same`,
    async (t) => {
      const url = await server.fresh()
      const file = await formerDatabase(t.testdir(), rows)
      if (code === 0) withRaw(file, (db) => db.exec(TABLES))
      const verified = async (source: string) => {
        const { code, out } = await sallyport(['verify', source, '--json'])
        const { notes: _, ...found } = JSON.parse(out)
        return { code, ...found }
      }
      const copy = () => sallyport(['copy-database', '--to', url], { MCP_PROXY_DATA_DIR: t.testdirName })
      t.match(await copy(), { code: 1, err: /another version.*start this version on it once/ })
      await (await openDatabase(`sqlite:${file}`)).close()
      const before = await verified(file)
      t.match(before, { code, ok: true, rows: rows.length })
      t.match(await copy(), { code: 0, out: /it verifies/ })
      t.same(await verified(url), before)
      const { rows: copied } = await raw(
        url,
        `select count(*)::int from audit_log group by leaf::json ->> 'v' order by leaf::json ->> 'v'`,
      )
      t.same(
        copied.map(({ count }) => count),
        versions,
      )
    },
  )
}
