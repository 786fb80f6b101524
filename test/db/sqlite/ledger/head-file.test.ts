import { copyFileSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { headPath, headProblem, openHeadFile, readHead } from '../../../../db/sqlite/ledger/head-file.ts'
import {
  appendCalls,
  entry,
  open,
  rowsOf,
  scratchDatabase,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

const HASH = 'ab'.repeat(32)

/** A closed ledger of ten rows, and of ten more in a copy that was made before them. */
async function twoCopies(directory: string): Promise<{ file: string; older: string }> {
  const file = await scratchDatabase(directory)
  const older = join(directory, 'older.db')
  const ledger = await open(file)
  await appendCalls(ledger, 5)
  await ledger.close()
  copyFileSync(file, older)
  const again = await open(file)
  await appendCalls(again, 5, 5)
  await again.close()
  return { file, older }
}

t.test('docs/ledger.md#head-file: each commit notes its last row beside the database', async (t) => {
  const file = await scratchDatabase(t.testdir())
  t.equal(readHead(file), null)
  const ledger = await open(file)
  t.equal(readHead(file), null, 'there is no row')
  for (let count = 1; count <= 3; count += 1) {
    const [sealed] = await ledger.commit({ entries: [entry()] })
    t.same(readHead(file), { seq: count, hash: sealed?.hash })
  }
  await ledger.close()
  t.same([statSync(headPath(file)).mode & 0o777, statSync(headPath(file)).size], [0o600, 99])
  const again = await open(file)
  await again.close()
  t.equal(readHead(file)?.seq, 3, 'a start goes on from it')
})

t.test('docs/ledger.md#head-file: an older copy in the place of the database stops the start', async (t) => {
  const { file, older } = await twoCopies(t.testdir())
  copyFileSync(older, file)
  await t.rejects(open(file), {
    message:
      /ends? at main:10, but main:20 was written: .* on purpose, remove .*sallyport\.db-head and start again$/,
  })
  rmSync(headPath(file))
  const restored = await open(file)
  t.equal(restored.head?.seq, 10, 'restored on purpose')
  await restored.close()
  t.equal(readHead(file)?.seq, 10)
})

t.test('docs/ledger.md#head-file: rows cut off the end, or written anew, stop the start', async (t) => {
  const { file, older } = await twoCopies(t.testdir())
  withRaw(file, (db) => {
    const { sql } = db
      .prepare<[], { sql: string }>("select sql from sqlite_schema where name = 'audit_rows_delete'")
      .get() ?? { sql: '' }
    db.exec(`drop trigger audit_rows_delete; delete from audit_rows where seq > 19; ${sql}`)
  })
  await t.rejects(open(file), { message: /ends? at main:19, but main:20 was written/ })

  const elsewhere = await open(older)
  for (let count = 0; count < 12; count += 1) await elsewhere.commit({ entries: [entry()] })
  await elsewhere.close()
  copyFileSync(older, file)
  t.equal(rowsOf(file).length, 22)
  await t.rejects(open(file), { message: /row main:20 is not the one that was written there/ })
})

t.test('docs/ledger.md#head-file: a file that is behind, missing or half written stops nobody', async (t) => {
  const { file, older } = await twoCopies(t.testdir())
  const record = readFileSync(headPath(file), 'latin1')
  const torn = record.slice(0, 40) + readFileSync(headPath(file), 'latin1').slice(40).replaceAll('a', 'b')
  for (const text of ['', 'nonsense', record.slice(0, 50), torn, record.replace(' ', '  ')]) {
    writeFileSync(headPath(file), text, 'latin1')
    if (text !== record) t.equal(readHead(file), null, JSON.stringify(text))
    const ledger = await open(file)
    await ledger.close()
    t.equal(readFileSync(headPath(file), 'latin1').slice(0, 99), record, 'made anew')
  }
  const ledger = await open(older)
  const behind = ledger.head
  await ledger.close()
  const heads = openHeadFile(file)
  if (behind) heads.note(behind)
  heads.close()
  const again = await open(file)
  await again.close()
  t.equal(readHead(file)?.seq, 20)
})

t.test('docs/ledger.md#head-file: only what is ahead, or differs at its place, is a problem', async (t) => {
  t.equal(headProblem(null, 7, undefined), null)
  t.equal(headProblem({ seq: 7, hash: HASH }, 9, HASH), null)
  t.match(headProblem({ seq: 7, hash: HASH }, 6, undefined), { kind: 'ahead' })
  t.match(headProblem({ seq: 7, hash: HASH }, 0, undefined), { kind: 'ahead' }, 'an emptied table')
  t.match(headProblem({ seq: 7, hash: HASH }, 7, 'other'), { kind: 'other' })
})

t.test('docs/ledger.md#head-file: a disk that takes no note keeps nobody from committing', async (t) => {
  const file = await scratchDatabase(t.testdir())
  symlinkSync('/dev/full', headPath(file))
  const ledger = await open(file)
  const [sealed] = await ledger.commit({ entries: [entry()] })
  t.equal(sealed?.seq, 1)
  t.notOk(ledger.failing)
  await ledger.close()
  t.equal(readHead(file), null)
})
