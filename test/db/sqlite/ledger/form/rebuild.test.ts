import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import SQLite from 'better-sqlite3'
import t, { type Test } from 'tap'
import { openDatabase } from '../../../../../db/engine.ts'
import { exportLine } from '../../../../../db/ledger/record/leaf.ts'
import { inspectDatabase } from '../../../../../db/sqlite/ledger/inspect.ts'
import { acquireLease } from '../../../../../db/sqlite/ledger/lease.ts'
import { openReadOnly, storedRows } from '../../../../../db/sqlite/ledger/rows.ts'
import { addFormerRows, formerDatabase, formerRows } from '../../../../support/db/former-ledger.ts'
import {
  entry,
  open,
  rowsOf,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../../../support/db/scratch-ledger.ts'
import { smallDisk, withoutTmpfs } from '../../../../support/small-disk.ts'

const ROWS = formerRows(5_000)
const HELPER = join(import.meta.dirname, '../../../../support/db/migrate-until-killed.ts')

const typeOf = (file: string): unknown =>
  withRaw(file, (db) => db.prepare("select type from sqlite_schema where name = 'audit_log'").pluck().get())

const copiedIn = (file: string): unknown =>
  withRaw(file, (db) => db.prepare('select max(seq) from ledger_copy').pluck().get())

const migrate = async (file: string, onCopied?: (rows: number, of: number) => void): Promise<void> =>
  (await openDatabase(`sqlite:${file}`, onCopied)).close()

/** Copies the first part of a ledger, and leaves it there. */
const copyOnePart = async (t: Test, file: string): Promise<void> => {
  const stop = () => {
    throw new Error('stopped')
  }
  await t.rejects(migrate(file, stop), { message: 'stopped' })
}

t.test('0051 keeps every row of a former ledger: same leaf, same hash, same columns', async (t) => {
  for (const count of [0, 1, 7, 4_000]) {
    const file = await formerDatabase(t.testdir(), ROWS.slice(0, count))
    const told: number[] = []
    await migrate(file, (rows, of) => told.push(rows, of))
    t.ok(isDeepStrictEqual(rowsOf(file), ROWS.slice(0, count)), `${count} rows`)
    t.equal(typeOf(file), 'view')
    t.same(told, count > 2_000 ? [2_000, count, count, count] : count === 0 ? [] : [count, count])
    const ledger = await open(file)
    t.match(await ledger.commit({ entries: [entry()] }), [{ seq: count + 1 }], 'the chain goes on')
    await ledger.close()
    t.match(await verifyFile(file), { ok: true, rows: count + 1 })
    t.notOk(existsSync(`${file}-journal`))
  }
})

t.test('a migrated database has the schema of a new one', async (t) => {
  const schemaOf = (file: string) =>
    withRaw(file, (db) =>
      db
        .prepare(
          "select type, name, tbl_name, sql from sqlite_schema where name not like 'kysely%' order by name",
        )
        .all(),
    )
  const migrated = await formerDatabase(t.testdir({ a: {} }), ROWS.slice(0, 10))
  await migrate(migrated)
  t.same(schemaOf(migrated), schemaOf(await scratchDatabase(join(t.testdirName, 'a'))))
})

t.test(
  'F-02 a migration that is killed leaves a ledger that is whole, and the next start goes on',
  async (t) => {
    const file = await formerDatabase(t.testdir(), ROWS)
    for (const [parts, copied] of [
      [1, 2_000],
      [1, 4_000],
    ]) {
      const killed = spawnSync(process.execPath, [HELPER, file, String(parts)])
      t.equal(killed.signal, 'SIGKILL', String(killed.stderr))
      t.equal(typeOf(file), 'table')
      t.equal(copiedIn(file), copied)
      t.ok(isDeepStrictEqual(rowsOf(file), ROWS), 'the ledger is as it was')
      t.match(await verifyFile(file), { ok: true, rows: ROWS.length })
    }
    const told: number[] = []
    await migrate(file, (rows) => told.push(rows))
    t.same(told, [5_000], 'what was copied is not copied again')
    t.ok(isDeepStrictEqual(rowsOf(file), ROWS))
    t.match(await verifyFile(file), { ok: true, rows: ROWS.length })
  },
)

t.test(
  'F-02 one that is killed while the copy is put in its place has done that, or has not begun',
  async (t) => {
    const file = await formerDatabase(t.testdir(), ROWS)
    // Killed from outside, once it compares, drops and renames.
    const child = spawn(process.execPath, [HELPER, file, 'none'], { stdio: 'ignore' })
    const ended = once(child, 'exit')
    const db = new SQLite(file, { readonly: true })
    const copied = () =>
      db.prepare("select 1 from sqlite_schema where name = 'ledger_copy'").get() &&
      db.prepare('select max(seq) from ledger_copy').pluck().get() === ROWS.length
    while (child.exitCode === null && !copied()) await new Promise((resolve) => setImmediate(resolve))
    child.kill('SIGKILL')
    await ended
    db.close()
    t.ok(isDeepStrictEqual(rowsOf(file), ROWS))
    await migrate(file)
    t.equal(typeOf(file), 'view')
    t.ok(isDeepStrictEqual(rowsOf(file), ROWS))
  },
)

t.test('rows that an older version adds to a ledger that is half copied are copied too', async (t) => {
  const file = await formerDatabase(t.testdir(), ROWS.slice(0, 3_000))
  await copyOnePart(t, file)
  withRaw(file, (db) => addFormerRows(db, ROWS.slice(3_000)))
  await migrate(file)
  t.ok(isDeepStrictEqual(rowsOf(file), ROWS))
})

t.test(
  'a copy of another ledger is begun anew, and one that was tampered with is never put in place',
  async (t) => {
    const other = await formerDatabase(t.testdir(), ROWS.slice(0, 2_500))
    await copyOnePart(t, other)
    withRaw(other, (db) => db.exec("update ledger_copy set leaf = '{}' where seq = 2000"))
    await migrate(other)
    t.ok(isDeepStrictEqual(rowsOf(other), ROWS.slice(0, 2_500)))

    for (const sql of [
      "update ledger_copy set leaf = '{}' where seq = 5",
      "update ledger_copy set status = 'denied' where seq = 5",
      'delete from ledger_copy where seq = 5',
      "insert into ledger_copy select -5, recorded_at, request_id, principal_id, action, status, 'x', 'x' from ledger_copy limit 1",
    ]) {
      const file = await formerDatabase(t.testdir(), ROWS.slice(0, 2_500))
      await copyOnePart(t, file)
      withRaw(file, (db) => db.exec(sql))
      await t.rejects(migrate(file), { message: /the copy of the audit ledger differs from it/ }, sql)
      t.ok(isDeepStrictEqual(rowsOf(file), ROWS.slice(0, 2_500)), 'the ledger is as it was')
    }
  },
)

t.test(
  'F-07 a ledger that does not verify is refused, with the first bad row, and stays as it is',
  async (t) => {
    const cases: readonly (readonly [string, RegExp])[] = [
      ["update audit_log set tool = 'x' where seq = 4", /row main:4 was changed: its columns and its leaf/],
      ['delete from audit_log where seq = 4', /row main:4 is missing/],
      [
        `insert into audit_log select 'other', 1, recorded_at, request_id, principal_id, principal_type, action, status, tool,
         model, provider, cert_thumbprint, dpop_jkt, detail, config_digest, version, prev_hash, row_hash, replace(leaf, '"main"', '"other"')
       from audit_log where seq = 1`,
        /row other:1 /,
      ],
    ]
    for (const [sql, message] of cases) {
      const file = await formerDatabase(t.testdir(), ROWS.slice(0, 9))
      const rows = withRaw(file, (db) => {
        db.exec(`drop trigger audit_log_update; drop trigger audit_log_delete; ${sql}`)
        return db.prepare('select * from audit_log').all()
      })
      await t.rejects(migrate(file), { message })
      await t.rejects(migrate(file), { message: /the audit ledger is damaged: .* stays as it is/ })
      t.equal(typeOf(file), 'table')
      t.same(
        withRaw(file, (db) => db.prepare('select * from audit_log').all()),
        rows,
      )
    }
  },
)

t.test('F-39 a ledger that another process writes is not migrated under it', async (t) => {
  const file = await formerDatabase(t.testdir(), ROWS.slice(0, 9))
  const lease = acquireLease(file)
  await t.rejects(migrate(file), { message: /another process writes the audit ledger/ })
  t.equal(typeOf(file), 'table')
  lease.close()
  await migrate(file)
  t.equal(typeOf(file), 'view')
})

t.test(
  'F-04 a disk without room for the copy is named before anything is written',
  { skip: withoutTmpfs() },
  async (t) => {
    const disk = smallDisk(t, '11m')
    const file = await formerDatabase(disk, ROWS.slice(0, 5_000))
    const before = readdirSync(disk)
    await t.rejects(migrate(file), {
      message: /needs \d+ MiB on the disk of .*, but only \d+ MiB are free: make room/,
    })
    t.same(
      readdirSync(disk).filter((name) => !name.endsWith('-lease')),
      before,
    )
    t.ok(isDeepStrictEqual(rowsOf(file), ROWS.slice(0, 5_000)))
  },
)

t.test('the pages of the former ledger are filled by new rows before the file grows', async (t) => {
  const file = await formerDatabase(t.testdir(), ROWS.slice(0, 3_000))
  await migrate(file)
  const pages = () =>
    withRaw(file, (db) =>
      [db.pragma('page_count', { simple: true }), db.pragma('freelist_count', { simple: true })].map(Number),
    )
  const [before = 0, free = 0] = pages()
  t.ok(free > before / 3, `${free} of ${before} pages are free`)
  const ledger = await open(file)
  for (let batch = 0; batch < 4; batch += 1)
    await ledger.commit({ entries: Array.from({ length: 400 }, () => entry()) })
  await ledger.close()
  const [after, left = 0] = pages()
  t.equal(after, before, 'the file has not grown')
  t.ok(left < free)
})

t.test('a ledger of the former form is still verified and exported as it is', async (t) => {
  const file = await formerDatabase(t.testdir(), ROWS.slice(0, 600))
  const found = await inspectDatabase(file, Date.now(), (rows) => rows)
  t.match(found, {
    verdict: { ok: true, rows: 600 },
    cutShort: null,
    findings: [],
    notes: [/another version/],
  })
  const db = openReadOnly(file)
  t.teardown(() => db.close())
  const lines = [...storedRows(db)].map((row) => ('damaged' in row ? row.damaged : exportLine(row)))
  t.same(
    lines,
    ROWS.slice(0, 600).map((row) => exportLine(row)),
  )
  t.equal(typeOf(file), 'table', 'and nothing of it is changed')
})
