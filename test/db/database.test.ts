import { spawnSync } from 'node:child_process'
import { chmodSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import SQLite from 'better-sqlite3'
import { sql } from 'kysely'
import t from 'tap'
import { NO_DATABASE_URL, openDatabase } from '../../db/engine.ts'
import { writeSetting } from '../../db/settings.ts'
import { openSqlite } from '../../db/sqlite/database.ts'
import { ENGINE, skipWithoutFile } from '../support/db/engine.ts'
import { opened } from '../support/db/writer.ts'

const READ_ONLY = ENGINE === 'sqlite' ? 'SQLITE_READONLY' : '25006'
const modeOf = (path: string): number => statSync(path).mode & 0o777

t.test('the connection refuses to write: the ledger is the only writer', async (t) => {
  const { db } = await opened(t)
  const row = { key: 'organisation', value: 'acme', updated_at: '' }
  await t.rejects(db.kysely.insertInto('settings').values(row).execute(), { code: READ_ONLY })
  await t.rejects(db.kysely.deleteFrom('internal_agents').execute(), { code: READ_ONLY })
  await t.rejects(sql`drop table single_uses`.execute(db.kysely), { code: READ_ONLY })
  t.same(await db.kysely.selectFrom('settings').selectAll().execute(), [])
})

t.test('what another connection has committed is read at once', async (t) => {
  const { db, run } = await opened(t)
  const value = db.lookup(db.kysely.selectFrom('settings').select('value').where('key', '=', ''))
  t.equal(await value('organisation'), undefined)
  await run(writeSetting(db, 'organisation', 'acme', 0))
  t.same(await value('organisation'), { value: 'acme' })
  t.equal(await value("' or 1 = 1 --"), undefined, 'a parameter is a value')
  t.equal(await value('organisation\0'), undefined, 'also one that no row could hold')
})

t.test('a lookup asked with too few or too many parameters throws', async (t) => {
  const { db } = await opened(t)
  const value = db.lookup(db.kysely.selectFrom('settings').select('value').where('key', '=', ''))
  await t.rejects(async () => value())
  await t.rejects(async () => value('organisation', 'acme'))
})

t.test(
  'a commit that returned is on the disk: WAL and synchronous=FULL, and the schema is not trusted',
  async (t) => {
    const file = join(t.testdir(), 'pragmas.db')
    // Twice: on a file that is in WAL already, better-sqlite3 starts with synchronous=NORMAL.
    openSqlite(file).close()
    const connection = openSqlite(file)
    t.teardown(() => connection.close())
    const pragma = (name: string): unknown => connection.pragma(name, { simple: true })
    t.same(['journal_mode', 'synchronous', 'foreign_keys'].map(pragma), ['wal', 2, 1])
    t.same(['recursive_triggers', 'trusted_schema', 'busy_timeout'].map(pragma), [1, 0, 0])
  },
)

t.test('T10 the main connection never waits for a lock', { skip: skipWithoutFile }, async (t) => {
  const { db } = await opened(t)
  t.match((await sql`pragma busy_timeout`.execute(db.kysely)).rows, [{ timeout: 0 }])
})

t.test(
  'T10 while another process holds the database locked, it is opened and read',
  { skip: skipWithoutFile },
  async (t) => {
    const { db, run } = await opened(t)
    await run(writeSetting(db, 'organisation', 'acme', 0))
    const writer = new SQLite(db.file ?? '')
    t.teardown(() => writer.close())
    writer.exec('begin exclusive')
    const second = await openDatabase(`sqlite:${db.file}`)
    t.teardown(() => second.close())
    t.match(await second.kysely.selectFrom('settings').selectAll().execute(), [{ value: 'acme' }])
    writer.exec('rollback')
  },
)

t.test(
  'the file and what SQLite puts beside it are for their owner alone',
  { skip: skipWithoutFile },
  async (t) => {
    const umask = process.umask(0)
    t.teardown(() => process.umask(umask))
    const { db, run } = await opened(t)
    await run(writeSetting(db, 'organisation', 'acme', 0))
    for (const end of ['', '-wal', '-shm']) t.equal(modeOf(`${db.file}${end}`), 0o600, end)
  },
)

t.test('a file that others could read is closed to them', async (t) => {
  const file = join(t.testdir(), 'lax.db')
  writeFileSync(file, '')
  chmodSync(file, 0o644)
  const db = await openDatabase(`sqlite:${file}`)
  t.teardown(() => db.close())
  t.equal(modeOf(file), 0o600)
})

t.test(
  'opening the file a second time does not drop the locks that this process holds on it',
  { skip: skipWithoutFile },
  async (t) => {
    const { db } = await opened(t)
    const second = await openDatabase(`sqlite:${db.file}`)
    t.teardown(() => second.close())
    // A process that wants the file for itself gets it only where nobody else holds a lock.
    const wish = `
    import SQLite from 'better-sqlite3'
    const connection = new SQLite(process.argv[1], { timeout: 0 })
    connection.pragma('locking_mode = EXCLUSIVE')
    console.log(connection.prepare('select * from settings').all())`
    const other = spawnSync(process.execPath, ['--input-type=module', '--eval', wish, db.file ?? ''], {
      encoding: 'utf8',
    })
    t.match(other.stderr, /SQLITE_BUSY|database is locked/)
    t.equal(other.stdout, '')
  },
)

t.test('the directory must exist', async (t) => {
  const file = join(t.testdir(), 'missing', 'sallyport.db')
  await t.rejects(openDatabase(`sqlite:${file}`), {
    message: `the database file ${file} cannot be created: its directory must exist and be writable`,
  })
})

t.test('a file that is no database is refused', async (t) => {
  const file = join(
    t.testdir({ 'notes.txt': 'dear diary, this is long enough to be read as a header. '.repeat(20) }),
    'notes.txt',
  )
  await t.rejects(openDatabase(`sqlite:${file}`), { code: 'SQLITE_NOTADB' })
})

t.test(
  'a PostgreSQL server that cannot be reached is one sentence that does not repeat the password',
  async (t) => {
    const directory = t.testdir()
    for (const scheme of ['postgres', 'postgresql']) {
      const url = `${scheme}://sallyport:hunter2@/sallyport?host=${encodeURIComponent(directory)}`
      await t.rejects(openDatabase(url), { message: /^the database cannot be opened: (?!.*hunter2)/ })
    }
  },
)

t.test('any other URL is refused', async (t) => {
  for (const url of ['', 'sqlite:', 'mysql://root:hunter2@db.example', '/data/sallyport.db', 'SQLITE:x']) {
    await t.rejects(openDatabase(url), { message: NO_DATABASE_URL }, url)
  }
})

t.test('a database in memory is of its connection alone', async (t) => {
  const db = await openDatabase('sqlite::memory:')
  t.equal(db.file, ':memory:')
  await db.close()
  t.throws(() => statSync(':memory:'))
})

t.test('a closed database answers nothing more', async (t) => {
  const db = await openDatabase('sqlite::memory:')
  const value = db.lookup(db.kysely.selectFrom('settings').select('value').where('key', '=', ''))
  await db.close()
  t.throws(() => value('organisation'))
})
