import { copyFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import { exportedLines, listRows, verifyDatabase } from '../../../../../db/ledger/read/read.ts'
import { GENESIS_HASH } from '../../../../../db/ledger/record/leaf.ts'
import { leafRowsAfter } from '../../../../../db/sqlite/ledger/row-pages.ts'
import { openReadOnly } from '../../../../../db/sqlite/ledger/rows.ts'
import { anyEntry } from '../../../../support/db/any-entry.ts'
import { chainOf } from '../../../../support/db/history.ts'
import { storeRows } from '../../../../support/db/ledger-with-tables.ts'
import {
  entry,
  open,
  reader,
  rowOf,
  rowsOf,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../../../support/db/scratch-ledger.ts'

/** Texts that JSON, SQL or UTF-8 could spell in another way. */
const TEXTS = [
  ...[
    '',
    ' ',
    '"',
    '\\',
    '\\u0041',
    '/',
    '\u0001\u001f\b\t\n\f\r',
    '\u007f\u0080',
    'é\u0301',
    '\u2028\u2029',
    '\ufeff',
  ],
  ...[
    '😀',
    '\ufffd',
    '\uffff',
    "'; drop table audit_rows; --",
    '{"prev_hash":"x"}',
    '","dpop_jkt":"',
    '$.detail',
    'null',
    '0',
  ],
]

const everyTextOf = (text: string) => ({
  ...{ request_id: text, principal_id: text, principal_type: text, action: text, status: text, tool: text },
  ...{ model: text, provider: text, cert_thumbprint: text, dpop_jkt: text, config_digest: text },
})

t.test('docs/ledger.md#row: every column says, byte for byte, what the leaf says', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const rows = chainOf(
    TEXTS.flatMap((text, index) => [
      entry({
        ...everyTextOf(text),
        detail: { text, é: [text, { [`n${index}`]: [] }], z: {} },
      }),
      entry({
        detail: {
          ...{ deep: [[[[{ a: [null, true, false] }]]]], empty: '', none: null },
          ...{ most: Number.MAX_SAFE_INTEGER, least: Number.MIN_SAFE_INTEGER, zero: 0, one: -1 },
        },
      }),
    ]),
    [1, 1, 1],
  )
  storeRows(file, rows)
  t.same(rowsOf(file), rows)
  t.match(await verifyFile(file), { ok: true, rows: rows.length })
})

t.test(
  'docs/ledger.md#table: a row without a leaf gives the bytes that were hashed, whatever it says',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const texts = TEXTS.map((text) => ({ ...entry(), ...everyTextOf(text), detail: { text, z: [text] } }))
    const entries = [...texts, ...fc.sample(anyEntry, 600)]
    const ledger = await open(file)
    for (let from = 0; from < entries.length; from += 50)
      await ledger.commit({ entries: entries.slice(from, from + 50) })
    await ledger.close()
    let previous = GENESIS_HASH
    const expected = entries.map((made, index) => {
      const row = rowOf(made, index + 1, previous)
      previous = row.row_hash
      return row
    })
    const stored = withRaw(file, (db) =>
      db.prepare("select count(*) from audit_rows where leaf = ''").pluck().get(),
    )
    t.equal(stored, entries.length)
    t.same(rowsOf(file), expected)
    t.match(await verifyFile(file), { ok: true, rows: entries.length })
    const db = openReadOnly(file)
    for (const [index, row] of [...leafRowsAfter(db, null)].entries()) {
      if (row.leaf !== expected[index]?.leaf) t.equal(row.leaf, expected[index]?.leaf)
    }
    db.close()
  },
)

t.test(
  'docs/ledger.md#table: rows of before 0097 and since are one chain, and a verifier sees no form',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    const before = chainOf(
      Array.from({ length: 5 }, () => entry()),
      [1, 1, 2, 2, 2],
    )
    storeRows(file, before)
    const ledger = await open(file)
    await ledger.commit({ entries: [entry({ model: 'gpt-6' }), entry()] })
    await ledger.close()
    t.same(rowsOf(file).slice(0, 5), before)
    t.match(await verifyFile(file), { ok: true, rows: 7 })
    for (const [seq, change] of [
      [2, "detail = '{}'"],
      [7, "leaf = '{}'"],
      [6, "model = 'gpt-5'"],
      [6, 'prev_hash = row_hash'],
      [6, 'tool = version'],
    ] as const) {
      const edited = `${file}-edited`
      copyFileSync(file, edited)
      withRaw(edited, (db) =>
        db.exec(`drop trigger audit_rows_update; update audit_rows set ${change} where seq = ${seq}`),
      )
      t.match(await verifyFile(edited), { ok: false, first_bad: { seq } }, change)
    }
  },
)

t.test('T11 a leaf that is no JSON is named, and keeps no other row from being read', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await ledger.commit({ entries: Array.from({ length: 300 }, () => entry()) })
  await ledger.close()
  withRaw(file, (db) => {
    db.exec("drop trigger audit_rows_update; update audit_rows set leaf = leaf || 'x' where seq = 200")
  })
  const { kysely } = await reader(t, file)
  const bad = { ok: false, rows: 199, first_bad: { seq: 200, problem: /its columns and its leaf/ } }
  t.match(await verifyFile(file), bad)
  t.match(await verifyDatabase(kysely), bad)
  t.equal((await listRows(kysely, { limit: 1_000 })).rows.length, 300)
  const lines = []
  for await (const line of exportedLines(kysely)) lines.push(line)
  t.equal(lines.length, 300)
})

t.test(
  'the head, a row by its place, and the last start are found without a walk over the rows',
  async (t) => {
    const file = await scratchDatabase(t.testdir())
    withRaw(file, (db) => {
      const planOf = (sql: string) =>
        db
          .prepare<[], { detail: string }>(`explain query plan ${sql}`)
          .all()
          .map(({ detail }) => detail)
      t.same(planOf('select * from audit_log order by seq'), ['SCAN audit_rows'], 'in the order of the table')
      t.same(planOf('select * from audit_log where seq > 5 order by seq limit 9'), [
        'SEARCH audit_rows USING INTEGER PRIMARY KEY (rowid>?)',
      ])
      t.same(planOf('select max(seq) from audit_rows'), ['SEARCH audit_rows'])
    })
  },
)

t.test('a database whose pages are packed anew (VACUUM) holds the same ledger, and goes on', async (t) => {
  const file = await scratchDatabase(t.testdir())
  const ledger = await open(file)
  await ledger.commit({ entries: [entry(), entry()] })
  await ledger.close()
  const before = rowsOf(file)
  withRaw(file, (db) => db.exec('vacuum'))
  t.same(rowsOf(file), before)
  const next = await open(file)
  t.match(await next.commit({ entries: [entry()] }), [{ seq: 3 }])
  await next.close()
  t.match(await verifyFile(file), { ok: true, rows: 3 })
})
