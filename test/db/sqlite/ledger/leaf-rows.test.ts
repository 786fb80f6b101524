import { copyFileSync } from 'node:fs'
import { join } from 'node:path'
import type SQLite from 'better-sqlite3'
import t from 'tap'
import { LeafRow } from '../../../../db/ledger/canonical/leaf-row.ts'
import { inspectDatabase } from '../../../../db/sqlite/ledger/inspect.ts'
import { leafRowsAfter } from '../../../../db/sqlite/ledger/row-pages.ts'
import { openReadOnly, rowsAfter } from '../../../../db/sqlite/ledger/rows.ts'
import { started } from '../../../support/db/history.ts'
import { HISTORY, honestDatabase } from '../../../support/db/ledger-with-tables.ts'
import {
  AT,
  appendCalls,
  open,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'

/** A row of a call: none of its columns beside the leaf is null. */
const CALL = HISTORY.findIndex(({ request_id: id }) => id !== null) + 1

/** Does something to the rows, and leaves the schema as it was. */
function behindTheGuards(db: SQLite.Database, sql: string): void {
  const guards = db
    .prepare<[], { name: string; sql: string }>(
      "select name, sql from sqlite_schema where type = 'trigger' and tbl_name = 'audit_rows'",
    )
    .all()
  for (const { name } of guards) db.exec(`drop trigger ${name}`)
  db.exec(sql)
  for (const guard of guards) db.exec(guard.sql)
}

t.test('docs/ledger.md#verifying: the rows are read from their leaves as the view shows them', async (t) => {
  const db = openReadOnly(await honestDatabase(t.testdir()))
  const [read, shown] = [[...leafRowsAfter(db, null)], [...rowsAfter(db, null)]]
  t.equal(read.length, HISTORY.length)
  t.ok(read.every((row) => row instanceof LeafRow))
  for (const [index, row] of shown.entries())
    t.same(
      Object.fromEntries(Object.keys(row).map((name) => [name, read[index]?.[name as keyof typeof row]])),
      row,
    )
  t.same(
    [...leafRowsAfter(db, 3)].map(({ seq }) => seq),
    shown.slice(3).map(({ seq }) => seq),
  )
  db.close()
})

t.test(
  'C1 a column beside a leaf that says something else is found, also behind untouched guards',
  async (t) => {
    const changes = [
      ...['recorded_at', 'request_id', 'principal_id', 'action', 'status', 'row_hash'].flatMap((column) => [
        `${column} = 'x'`,
        `${column} = cast(${column} as blob)`,
      ]),
      ...[
        "leaf = leaf || ' '",
        'leaf = cast(leaf as blob)',
        `leaf = replace(leaf, '"v":2', '"v":3')`,
        "leaf = 'x'",
      ],
      ...[
        `leaf = replace(leaf, '"stream":"main"', '"stream":"other"')`,
        "leaf = cast(leaf || x'ff' as text)",
      ],
    ]
    for (const change of changes) {
      const file = await honestDatabase(t.testdir())
      withRaw(file, (db) => behindTheGuards(db, `update audit_rows set ${change} where seq = ${CALL}`))
      const { verdict, findings } = await inspectDatabase(file, AT, (rows) => rows)
      t.match(verdict, { ok: false, first_bad: { stream: 'main', seq: CALL } }, change)
      t.same(findings, [], 'the schema is as it was')
    }
  },
)

t.test('C1 in a long ledger, which threads read, each odd row is found as by one thread', async (t) => {
  const directory = t.testdir()
  const file = await scratchDatabase(directory)
  const ledger = await open(file)
  await ledger.commit({ entries: [started] })
  await appendCalls(ledger, 2_400)
  await ledger.close()
  const rows = 4_801
  t.match((await inspectDatabase(file, AT, (page) => page)).verdict, { ok: true, rows })
  const ODD = 4_700
  const nextLine = `(select '"' || row_hash || '"' || leaf from audit_log where seq = ${ODD + 1})`
  const edits = [
    ...["status = 'x'", 'row_hash = cast(row_hash as blob)', "detail = detail || ' '", "leaf = 'x'"].map(
      (set) => `update audit_rows set ${set} where seq = ${ODD}`,
    ),
    `update audit_rows set request_id = cast(x'ff' as text) where seq = ${ODD}`,
    `delete from audit_rows where seq = ${ODD}`,
    `update audit_rows set seq = -1 where seq = ${ODD}`,
    `update audit_rows set detail = detail || char(10) || ${nextLine} where seq = ${ODD};
     delete from audit_rows where seq = ${ODD + 1}`,
  ]
  const copy = join(directory, 'copy.db')
  for (const sql of edits) {
    copyFileSync(file, copy)
    withRaw(copy, (db) => behindTheGuards(db, sql))
    const { verdict } = await inspectDatabase(copy, AT, (page) => page)
    t.match(verdict, { ok: false }, sql)
    t.same(verdict.first_bad, (await verifyFile(copy)).first_bad, sql)
  }
})
