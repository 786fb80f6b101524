import { copyFileSync } from 'node:fs'
import SQLite from 'better-sqlite3'
import t from 'tap'
import { GENESIS_HASH } from '../../../../db/ledger/record/leaf.ts'
import {
  appendCalls,
  open,
  rowsOf,
  scratchDatabase,
  verifyFile,
  WHOLE_LEAVES,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

/** A copy of row 2 that claims another place and parent: in columns, and in a leaf as before. */
const insert = (verb: string, seq: string, parent: string | undefined): readonly string[] => [
  `${verb} into audit_rows (${COLUMNS}, seq, row_hash, leaf, prev_hash)
   select ${COLUMNS}, ${seq}, 'evil', '', '${parent}' from audit_rows where seq = 2`,
  `${verb} into ${WHOLE_LEAVES} select ${seq}, recorded_at, request_id, principal_id, action, status, 'evil',
   json_set(leaf, '$.prev_hash', '${parent}') from audit_log where seq = 2`,
]

const COLUMNS =
  'recorded_at, request_id, principal_id, action, status, detail, config_digest, version, model, cert_thumbprint'

t.test('T11 the database itself refuses to change, delete, replace, reorder or fork a row', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await appendCalls(ledger, 3)
  await ledger.close()
  const before = rowsOf(file)
  const hashes = before.map((row) => row.row_hash)
  const refused = [
    `update audit_rows set status = 'denied' where seq = 2`,
    `update audit_rows set rowid = 99 where seq = 2`,
    `update or replace audit_rows set seq = 1 where seq = 2`,
    'delete from audit_rows',
    'delete from audit_rows where seq = 6',
    ...insert('insert', '2', hashes[1]),
    ...insert('insert', '8', hashes[5]),
    ...insert('insert', '7', hashes[1]),
    ...insert('insert', '1', GENESIS_HASH),
    ...insert('insert', '0', hashes[5]),
    ...insert('insert', '-1', hashes[5]),
    ...insert('insert', 'null', hashes[5]),
    ...insert('insert or replace', '1', GENESIS_HASH),
    ...insert('insert or replace', '2', hashes[0]),
    ...insert('insert or replace', '6', hashes[4]),
    ...insert('insert or replace', '7', hashes[4]),
    ...insert('replace', '6', hashes[5]),
  ]
  for (const recursive of ['on', 'off']) {
    const db = new SQLite(file)
    db.pragma(`recursive_triggers = ${recursive}`)
    for (const sql of refused)
      t.throws(() => db.exec(sql), { code: /^SQLITE_CONSTRAINT/ }, `${sql} (${recursive})`)
    for (const sql of ["update audit_log set tool = 'x'", 'delete from audit_log'])
      t.throws(() => db.exec(sql), /audit_log because it is a view/, sql)
    db.close()
  }
  t.same(rowsOf(file), before)
  t.match(await verifyFile(file), { ok: true, rows: 6 })
})

t.test(
  'T11 the next row of a chain is accepted, so the refusals above are not refusals of everything',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await appendCalls(ledger, 3)
    await ledger.close()
    const last = rowsOf(file)[5]?.row_hash
    for (const [form, next] of insert('insert', '7', last).entries()) {
      const copy = `${file}-${form}`
      copyFileSync(file, copy)
      withRaw(copy, (db) => db.exec(next))
      t.equal(rowsOf(copy).length, 7)
      t.match(await verifyFile(copy), { ok: false, first_bad: { seq: 7 } }, 'and the verifier finds it')
    }
  },
)

t.test('T11 the first row of a chain has no parent, and is there once', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const first = (seq: number, parent: string) =>
    `insert into ${WHOLE_LEAVES} values (${seq}, '2026', null, null, 'x', 'x', 'evil', '{"prev_hash":"${parent}"}')`
  withRaw(file, (db) => {
    t.throws(() => db.exec(first(1, 'evil')), /only the next row/)
    t.throws(() => db.exec(first(2, GENESIS_HASH)), /only the next row/)
    db.exec(first(1, GENESIS_HASH))
    t.throws(() => db.exec(first(1, GENESIS_HASH)), /only the next row/)
    t.throws(() => db.exec(first(1, GENESIS_HASH).replace('insert', 'replace')), /only the next row/)
  })
})

t.test(
  'T11 boot refuses a database whose guards were dropped, changed or added to, and names what',
  async (t) => {
    const changes: readonly (readonly [string, RegExp])[] = [
      ['drop trigger audit_rows_delete', /audit_rows_delete is missing/],
      ['drop index audit_rows_request', /audit_rows_request is missing/],
      [
        'drop trigger audit_rows_update; create trigger audit_rows_update before update on audit_rows begin select 1; end',
        /audit_rows_update was changed/,
      ],
      [
        'create trigger harmless after insert on audit_rows begin delete from settings; end',
        /harmless was added/,
      ],
      ['alter table audit_rows add column note text', /audit_rows was changed/],
      ['drop view audit_log; create view audit_log as select * from audit_rows', /audit_log was changed/],
    ]
    for (const [sql, message] of changes) {
      const file = await scratchDatabase(t.testdir())
      withRaw(file, (db) => db.exec(sql))
      await t.rejects(open(file), { message }, sql)
    }
  },
)
