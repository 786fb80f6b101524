import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import t from 'tap'
import { openDatabase } from '../../../db/engine.ts'
import type { DatabaseSchema } from '../../../db/schema.ts'
import { SQLITE_MIGRATIONS } from '../../../db/sqlite/migrations.ts'

type Row = Record<string, unknown>

/** Each row of `after`, of the columns that the first of `before` has: later migrations add others. */
const asBefore = (after: readonly Row[], before: readonly Row[]) =>
  after.map((row) => Object.fromEntries(Object.keys(before[0] ?? {}).map((column) => [column, row[column]])))

t.test(
  '§2.4 0047 adds resources, tools and bindings, and leaves every row of before as it was',
  async (t) => {
    const file = join(t.testdir(), 'old.db')
    const connection = new SQLite(file)
    const db = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
    const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...SQLITE_MIGRATIONS }) } })
    const { error } = await migrator.migrateTo('0046_identity')
    t.equal(error, undefined)
    const tables = () =>
      connection
        .prepare<[], { name: string }>(
          "select name from sqlite_schema where type = 'table' and name like 'mcp_%'",
        )
        .all()
        .map(({ name }) => name)
    t.same(tables(), [])
    const insert =
      'insert into internal_agents (agent_id, name, enrollment_method, created_at, updated_at) values'
    connection.exec(`${insert} ('acme::bot', 'bot', 'minted', '2026', '2026')`)
    const before = connection.prepare<[], Row>('select * from internal_agents').all()
    await db.destroy()

    const migrated = await openDatabase(`sqlite:${file}`)
    t.teardown(() => migrated.close())
    for (const table of ['mcp_resources', 'mcp_tools', 'mcp_bindings'] as const) {
      t.same(await migrated.kysely.selectFrom(table).selectAll().execute(), [], table)
    }
    const after = await migrated.kysely.selectFrom('internal_agents').selectAll().execute()
    t.same(asBefore(after, before), before)
  },
)

t.test('§2.3 0050 lets a resource demand nothing, and leaves those of before as they were', async (t) => {
  const file = join(t.testdir(), 'old.db')
  const connection = new SQLite(file)
  const db = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...SQLITE_MIGRATIONS }) } })
  t.equal((await migrator.migrateTo('0049_list_indexes')).error, undefined)
  const insert = connection.prepare(
    `insert into mcp_resources (resource_id, name, endpoint_url, auth_type, required_capability, allowed_domains,
       enabled, tool_capabilities, created_at, updated_at) values (?, ?, 'https://a/', 'none', ?, '[]', 1, '{}', '', '')`,
  )
  insert.run('mcpr_a', 'a', 'mcp.tools.call')
  insert.run('mcpr_b', 'b', 'b.use')
  const before = connection.prepare<[], Row>('select * from mcp_resources order by name').all()
  await db.destroy()

  const migrated = await openDatabase(`sqlite:${file}`)
  t.teardown(() => migrated.close())
  const after = await migrated.kysely.selectFrom('mcp_resources').selectAll().orderBy('name').execute()
  t.same(asBefore(after, before), before)
})
