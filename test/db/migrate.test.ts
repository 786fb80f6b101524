import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import { Kysely, SqliteDialect } from 'kysely'
import { Migrator } from 'kysely/migration'
import t from 'tap'
import { openDatabase } from '../../db/engine.ts'
import { migrateToLatest } from '../../db/migrate.ts'
import type { DatabaseSchema } from '../../db/schema.ts'
import { openSqliteDatabase } from '../../db/sqlite/database.ts'
import { SQLITE_MIGRATIONS } from '../../db/sqlite/migrations.ts'

const CAPABILITIES = '0045_principal_capabilities'
const REVISION = '0048_authority_revision'
const TABLES = ['internal_agents', 'local_user_principals', 'local_workload_principals']

interface Column {
  readonly name: string
  readonly type: string
  readonly notnull: number
  readonly dflt_value: string | null
}

const columnsOf = (connection: SQLite.Database, table: string): readonly string[] =>
  connection
    .prepare<[string], Column>('select * from pragma_table_info(?)')
    .all(table)
    .map((column) => column.name)

const namesOf = (connection: SQLite.Database, type: string): readonly string[] =>
  connection
    .prepare<[string], { name: string }>('select name from sqlite_schema where type = ? order by name')
    .all(type)
    .map((row) => row.name)

const rowsIn = (connection: SQLite.Database, table: string): readonly unknown[] =>
  connection.prepare(`select * from ${table}`).all()

/** The database as the version before a migration left it, with a row in each table of principals. */
async function before(migration: string, file: string): Promise<void> {
  const connection = new SQLite(file)
  const db = new Kysely<DatabaseSchema>({ dialect: new SqliteDialect({ database: connection }) })
  const migrator = new Migrator({ db, provider: { getMigrations: async () => ({ ...SQLITE_MIGRATIONS }) } })
  const names = Object.keys(SQLITE_MIGRATIONS).sort()
  const { error } = await migrator.migrateTo(names[names.indexOf(migration) - 1] ?? '')
  if (error !== undefined) throw error
  for (const [index, table] of TABLES.entries()) {
    const id = index === 0 ? 'agent_id' : 'principal_id'
    connection
      .prepare(
        `insert into ${table} (${id}, name, enrollment_method, created_at, updated_at) values (?, ?, ?, ?, ?)`,
      )
      .run(`acme::${table}`, table, 'minted', '2026-01-01T00:00:00.000Z', '2026-01-01T00:00:00.000Z')
  }
  await db.destroy()
}

t.test('an empty database gets every table of the schema', async (t) => {
  const file = join(t.testdir(), 'new.db')
  await (await openDatabase(`sqlite:${file}`)).close()
  const connection = new SQLite(file)
  t.teardown(() => connection.close())
  for (const table of [...TABLES, 'certificate_pins', 'settings', 'audit_rows']) {
    t.ok(namesOf(connection, 'table').includes(table), table)
  }
  t.ok(namesOf(connection, 'trigger').length >= 3, "the ledger's guards are there")
})

t.test('a database that is up to date is opened again, and nothing of it changes', async (t) => {
  const url = `sqlite:${join(t.testdir(), 'twice.db')}`
  const first = await openDatabase(url)
  const before = await first.kysely.introspection.getTables({ withInternalKyselyTables: true })
  await first.close()
  const second = await openDatabase(url)
  t.teardown(() => second.close())
  t.same(await second.kysely.introspection.getTables({ withInternalKyselyTables: true }), before)
})

t.test('§2.1 before 0045 agents alone have a capabilities column', async (t) => {
  const file = join(t.testdir(), 'old.db')
  await before(CAPABILITIES, file)
  const connection = new SQLite(file)
  t.teardown(() => connection.close())
  t.same(
    TABLES.map((table) => columnsOf(connection, table).includes('capabilities')),
    [true, false, false],
  )
})

t.test('§2.1 0045 adds capabilities to users and workloads: text, not null, server default []', async (t) => {
  const file = join(t.testdir(), 'new.db')
  await (await openDatabase(`sqlite:${file}`)).close()
  const connection = new SQLite(file)
  t.teardown(() => connection.close())
  for (const table of TABLES) {
    const column = connection
      .prepare<[string], Column>("select * from pragma_table_info(?) where name = 'capabilities'")
      .get(table)
    t.match(column, { type: /^text$/i, notnull: 1, dflt_value: "'[]'" }, table)
  }
})

t.test('§2.1 0045 fills the rows that exist with the empty set, and keeps all else of them', async (t) => {
  const file = join(t.testdir(), 'old.db')
  await before(CAPABILITIES, file)
  const db = await openDatabase(`sqlite:${file}`)
  t.teardown(() => db.close())
  const [users, workloads] = await Promise.all([
    db.kysely.selectFrom('local_user_principals').selectAll().execute(),
    db.kysely.selectFrom('local_workload_principals').selectAll().execute(),
  ])
  for (const rows of [users, workloads]) {
    t.match(rows, [{ capabilities: '[]', is_active: 1, created_at: '2026-01-01T00:00:00.000Z' }])
    t.equal(rows.length, 1)
  }
  t.equal(users[0]?.principal_id, 'acme::local_user_principals')
})

t.test('B1 0048 numbers the authority of the principals that exist with 1, and keeps all else', async (t) => {
  const file = join(t.testdir(), 'old.db')
  await before(REVISION, file)
  const connection = new SQLite(file)
  t.notOk(TABLES.some((table) => columnsOf(connection, table).includes('authority_revision')))
  connection.exec('update internal_agents set revision = 7, capabilities = \'["llm.chat"]\'')
  connection.close()
  const db = await openDatabase(`sqlite:${file}`)
  t.teardown(() => db.close())
  const [agents, users, workloads] = await Promise.all([
    db.kysely.selectFrom('internal_agents').selectAll().execute(),
    db.kysely.selectFrom('local_user_principals').selectAll().execute(),
    db.kysely.selectFrom('local_workload_principals').selectAll().execute(),
  ])
  t.match(agents, [{ authority_revision: 1, revision: 7, capabilities: '["llm.chat"]', is_active: 1 }])
  t.match(users, [{ authority_revision: 1, revision: 1, capabilities: '[]' }])
  t.match(workloads, [{ authority_revision: 1, revision: 1, capabilities: '[]' }])
})

/** The columns that later migrations have added. */
const LATER = [
  ...['principal_ref', 'created_by', 'changed_by', 'candidate', 'candidate_since'],
  ...['previous_spiffe_bundles', 'followed_bundle', 'spiffe_bundle_digests', 'labels', 'capability_set'],
]

/** As they were before 0050. */
const asBefore = (rows: readonly unknown[]): readonly unknown[] =>
  rows.map((row) => Object.fromEntries(Object.entries(Object(row)).filter(([name]) => !LATER.includes(name))))

t.test('A7: 0049 adds indexes, and keeps all rows', async (t) => {
  const file = join(t.testdir(), 'old.db')
  await before('0049_list_indexes', file)
  const connection = new SQLite(file)
  t.teardown(() => connection.close())
  const tables = namesOf(connection, 'table')
  const rows = () =>
    tables.filter((name) => !name.startsWith('kysely')).map((name) => rowsIn(connection, name))
  const before0049 = rows()
  await (await openDatabase(`sqlite:${file}`)).close()
  t.same(rows().map(asBefore), before0049)
  const indexes = namesOf(connection, 'index')
  for (const name of ['mcp_bindings_oldest', 'mcp_tools_quarantined', 'mcp_resources_unreadable'])
    t.ok(indexes.includes(name), name)
})

for (const name of ['9999_next_year', '0030_between']) {
  t.test(
    `F-39 a database that has run ${name}, which we do not know, is refused and left alone`,
    async (t) => {
      const file = join(t.testdir(), 'future.db')
      const url = `sqlite:${file}`
      await (await openSqliteDatabase(file)).close()
      const writer = new SQLite(file)
      t.teardown(() => writer.close())
      writer.prepare('insert into kysely_migration values (?, ?)').run(name, '2027-01-01T00:00:00.000Z')
      const before = writer.prepare('select * from sqlite_schema').all()
      await t.rejects(openDatabase(url), {
        message: `the database was migrated by a newer version of this service (${name}): run that version, or restore a backup`,
      })
      t.same(writer.prepare('select * from sqlite_schema').all(), before)
    },
  )
}

t.test('a migration that fails leaves nothing behind', async (t) => {
  const file = join(t.testdir(), 'broken.db')
  const writer = new SQLite(file)
  t.teardown(() => writer.close())
  writer.exec('create table settings (somebody text)')
  await t.rejects(openDatabase(`sqlite:${file}`), { message: 'the database could not be migrated' })
  t.same(namesOf(writer, 'table'), ['settings'])
})

t.test('migrating a database that is up to date does nothing', async (t) => {
  const db = await openDatabase('sqlite::memory:')
  t.teardown(() => db.close())
  // The connection is read-only by now: whatever it did would throw.
  await t.resolves(migrateToLatest(db.kysely, SQLITE_MIGRATIONS))
})

t.test('every migration stands under a name that says its number, in order', async (t) => {
  const names = Object.keys(SQLITE_MIGRATIONS)
  t.same(names, [...names].sort())
  t.ok(names.every((name) => /^\d{4}_[a-z_]+$/.test(name)))
})
