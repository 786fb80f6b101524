import SQLite from 'better-sqlite3'
import t from 'tap'
import {
  appendCalls,
  open,
  rowsOf,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../support/db/scratch-ledger.ts'

const COLUMNS = `recorded_at, request_id, principal_id, principal_type, action, status, tool, model, provider, cert_thumbprint,
  dpop_jkt, detail, config_digest, version`

/** A copy of row 2 that claims another place. */
const insert = (verb: string, place: string, rowid = '') =>
  `${verb} into audit_log (${rowid ? 'rowid, ' : ''}stream, seq, prev_hash, row_hash, leaf, ${COLUMNS})
   select ${rowid ? `${rowid}, ` : ''}${place}, 'evil', 'evil', ${COLUMNS} from audit_log where seq = 2`

t.test('T11 the database itself refuses to change, delete, replace, reorder or fork a row', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await appendCalls(ledger, 3)
  await ledger.close()
  const before = rowsOf(file)
  const [second, last] = [before[1]?.row_hash, before[5]?.row_hash]
  const first = '0'.repeat(64)
  const refused = [
    `update audit_log set status = 'denied' where seq = 2`,
    `update audit_log set rowid = 99 where seq = 2`,
    `update or replace audit_log set seq = 1 where seq = 2`,
    'delete from audit_log',
    'delete from audit_log where seq = 6',
    insert('insert', `'main', 2, '${second}'`),
    insert('insert', `'main', 8, '${last}'`),
    insert('insert', `'main', 7, '${second}'`),
    insert('insert', `'main', 1, '${first}'`),
    insert('insert', `'other', 2, '${last}'`),
    insert('insert', `'other', 1, '${last}'`),
    insert('insert or replace', `'main', 1, '${first}'`),
    insert('insert or replace', `'main', 2, '${before[0]?.row_hash}'`),
    insert('insert or replace', `'main', 6, '${before[4]?.row_hash}'`),
    insert('insert or replace', `'main', 7, '${before[4]?.row_hash}'`),
    // The right place in the chain, but laid over the bytes of row 2.
    insert('insert or replace', `'main', 7, '${last}'`, '2'),
  ]
  for (const recursive of ['on', 'off']) {
    const db = new SQLite(file)
    db.pragma(`recursive_triggers = ${recursive}`)
    for (const sql of refused)
      t.throws(() => db.exec(sql), { code: /^SQLITE_CONSTRAINT/ }, `${sql} (${recursive})`)
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
    withRaw(file, (db) => {
      db.exec(insert('insert', `'main', 7, '${last}'`))
      db.exec(insert('insert', `'other', 1, '${'0'.repeat(64)}'`))
    })
    t.equal(rowsOf(file).length, 8)
    t.match(await verifyFile(file), { ok: false, first_bad: { seq: 7 } }, 'and the verifier finds it')
  },
)

t.test(
  'T11 boot refuses a database whose guards were dropped, changed or added to, and names what',
  async (t) => {
    const changes: readonly (readonly [string, RegExp])[] = [
      ['drop trigger audit_log_delete', /audit_log_delete is missing/],
      ['drop index audit_log_request', /audit_log_request is missing/],
      [
        'drop trigger audit_log_update; create trigger audit_log_update before update on audit_log begin select 1; end',
        /audit_log_update was changed/,
      ],
      [
        'create trigger harmless after insert on audit_log begin delete from settings; end',
        /harmless was added/,
      ],
      ['alter table audit_log add column note text', /audit_log was changed/],
    ]
    for (const [sql, message] of changes) {
      const file = await scratchDatabase(t.testdir())
      withRaw(file, (db) => db.exec(sql))
      await t.rejects(open(file), { message }, sql)
    }
  },
)
