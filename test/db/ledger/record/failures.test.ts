import { execFileSync, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import {
  entry,
  open,
  rowsOf,
  scratchDatabase,
  verifyFile,
  WHOLE_LEAVES,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

const never = Symbol('never')
/** What `promise` has become by now, or `never`. */
const byNow = <T>(promise: Promise<T>) =>
  Promise.race([promise, new Promise((r) => setImmediate(() => r(never)))])

/** Another process that holds the write lock of the database until it is told to let go. */
async function locker(file: string): Promise<() => Promise<void>> {
  const code = `
    import SQLite from 'better-sqlite3'
    const db = new SQLite(process.env.DATABASE)
    db.exec('begin immediate')
    console.log('locked')
    process.stdin.on('end', () => db.exec('rollback')).resume()`
  const child = spawn(process.execPath, ['--input-type=module', '-e', code], {
    env: { ...process.env, DATABASE: file },
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  await once(child.stdout, 'data')
  return async () => {
    child.stdin.end()
    await once(child, 'exit')
  }
}

t.test(
  'F-05, T10 a database that another process has locked refuses the batch, blocks nobody, and recovers',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await ledger.commit({ entries: [entry()] })
    const letGo = await locker(file)
    let turns = 0
    let waiting = true
    const count = () => {
      turns += 1
      if (waiting) setImmediate(count)
    }
    setImmediate(count)
    await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable', message: /locked/ })
    waiting = false
    t.ok(turns > 50, `the event loop turned ${turns} times while the writer waited for the lock`)
    await letGo()
    t.match(await ledger.commit({ entries: [entry()] }), [{ seq: 2 }])
    t.equal(await byNow(ledger.failed), never)
    await ledger.close()
    t.match(await verifyFile(file), { ok: true, rows: 2 })
  },
)

/** Runs `work` on a disk of 3 MiB mounted at `directory`; false where this process may not mount one. */
async function onSmallDisk(directory: string, work: () => Promise<void>): Promise<boolean> {
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', directory])
  if (mounted.status !== 0) return false
  try {
    await work()
  } finally {
    execFileSync('umount', ['-l', directory])
  }
  return true
}

t.test('F-04 a full disk refuses the batch, and the ledger recovers when there is space', async (t) => {
  const directory = t.testdir()
  const done = await onSmallDisk(directory, async () => {
    const file = await scratchDatabase(directory)
    const ledger = await open(file)
    const ballast = join(directory, 'ballast')
    writeFileSync(ballast, Buffer.alloc(1_500_000))
    const batch = () =>
      Promise.allSettled(Array.from({ length: 256 }, () => ledger.commit({ entries: [entry()] })))
    let stored = 0
    for (let full = false; !full; ) {
      const outcomes = await batch()
      stored += outcomes.filter(({ status }) => status === 'fulfilled').length
      full = outcomes.some(({ status }) => status === 'rejected')
    }
    const [refused] = await batch()
    t.match(refused, { status: 'rejected', reason: { code: 'unavailable', message: /full/ } })
    rmSync(ballast)
    t.match(await ledger.commit({ entries: [entry()] }), [{ seq: stored + 1 }])
    t.equal(await byNow(ledger.failed), never)
    await ledger.close()
    t.match(await verifyFile(file), { ok: true, rows: stored + 1 })
  })
  if (!done) t.pass('a full disk', { skip: 'a tmpfs cannot be mounted here' })
})

t.test('docs/ledger.md#appending: a head that moved under the writer stops it for good', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await ledger.commit({ entries: [entry(), entry()] })
  withRaw(file, (db) =>
    db.exec(
      `insert into ${WHOLE_LEAVES} select 3, recorded_at, request_id, principal_id, action, status, 'other',
         json_set(leaf, '$.prev_hash', row_hash) from audit_log where seq = 2`,
    ),
  )
  t.equal(await byNow(ledger.failed), never)
  await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable' })
  t.match(await ledger.failed, { message: 'audit head moved from 2 to 3: another writer holds this chain' })
  await t.rejects(ledger.commit({ entries: [entry()] }), {
    code: 'unavailable',
    message: /moved from 2 to 3/,
  })
  await ledger.close()
  t.equal(rowsOf(file).length, 3)
})

t.test(
  'docs/ledger.md#appending: a last row that was taken away or changed under the writer stops it for good',
  async (t) => {
    const changes: readonly (readonly [string, RegExp])[] = [
      ['drop trigger audit_rows_delete; delete from audit_rows where seq = 2', /moved from 2 to 1/],
      [
        "drop trigger audit_rows_update; update audit_rows set row_hash = 'x' where seq = 2",
        /main:2 was changed/,
      ],
    ]
    for (const [sql, message] of changes) {
      const file = await scratchDatabase(t.testdir())
      const ledger = await open(file)
      await ledger.commit({ entries: [entry(), entry()] })
      withRaw(file, (db) => db.exec(sql))
      await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable' })
      t.match(await ledger.failed, { message })
      await ledger.close()
    }
  },
)

t.test(
  'F-06 a database file or log that is replaced while running is noticed before a row is acknowledged',
  async (t) => {
    for (const name of ['', '-wal']) {
      const file = await scratchDatabase(t.testdir())
      const ledger = await open(file)
      await ledger.commit({ entries: [entry()] })
      copyFileSync(`${file}${name}`, `${file}.copy`)
      renameSync(`${file}.copy`, `${file}${name}`)
      await t.rejects(ledger.commit({ entries: [entry()] }), { code: 'unavailable' })
      t.match(await ledger.failed, { message: /deleted or replaced/ })
      await ledger.close()
    }
  },
)

t.test(
  'F-39 a second writer on the same database is refused, and the first one is not disturbed',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await t.rejects(open(file), { message: /another process writes the audit ledger/ })
    t.match(await ledger.commit({ entries: [entry()] }), [{ seq: 1 }])
    await ledger.close()
    const next = await open(file)
    t.match(await next.commit({ entries: [entry()] }), [{ seq: 2 }])
    await next.close()
  },
)

t.test('F-07 boot refuses a ledger whose last rows do not verify, and names the first bad one', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  for (let batch = 0; batch < 3; batch += 1) {
    await ledger.commit({ entries: Array.from({ length: 400 }, () => entry()) })
  }
  await ledger.close()
  const guard = withRaw(file, (db) => {
    const sql = db.prepare("select sql from sqlite_schema where name = 'audit_rows_update'").pluck().get()
    db.exec(
      "drop trigger audit_rows_update; update audit_rows set status = 'denied' where seq in (900, 1100)",
    )
    db.exec(String(sql))
    return sql
  })
  t.match(guard, 'append-only')
  await t.rejects(open(file), {
    message: 'the audit ledger is damaged: row main:900 was changed: row_hash is not the digest of its leaf',
  })
  await t.rejects(open(join(t.testdir(), 'nothing.db')), { message: /./ })
})
