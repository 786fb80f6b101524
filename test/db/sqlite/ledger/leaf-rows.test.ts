import type SQLite from 'better-sqlite3'
import t from 'tap'
import { LeafRow } from '../../../../db/ledger/canonical/leaf-row.ts'
import { inspectDatabase, leafRowsAfter } from '../../../../db/sqlite/ledger/inspect.ts'
import { openReadOnly, rowsAfter } from '../../../../db/sqlite/ledger/rows.ts'
import { HISTORY, honestDatabase } from '../../../support/db/ledger-with-tables.ts'
import { AT, withRaw } from '../../../support/db/scratch-ledger.ts'

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
