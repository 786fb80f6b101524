import canonicalize from 'canonicalize'
import t from 'tap'
import { exportLine, hashOf, leafOf, type StoredRow } from '../../../../db/ledger/record/leaf.ts'
import { NotAnExport } from '../../../../db/ledger/verify/export.ts'
import type { LedgerVerdict } from '../../../../db/ledger/verify/verify.ts'
import { exportedRows, streamLines, verifyRows } from '../../../support/db/row-by-row.ts'
import {
  appendCalls,
  entry,
  open,
  rowOf,
  rowsOf,
  scratchDatabase,
  verifyFile,
  withRaw,
} from '../../../support/db/scratch-ledger.ts'
import { tamperings } from '../../../support/db/tampering.ts'

async function cleanLog(
  directory: string,
  calls: number,
): Promise<{ file: string; rows: readonly StoredRow[] }> {
  const file = await scratchDatabase(directory)
  const ledger = await open(file)
  await appendCalls(ledger, calls)
  await ledger.close()
  return { file, rows: rowsOf(file) }
}

const resealed = (row: StoredRow): StoredRow => {
  const leaf = leafOf(row)
  return { ...row, leaf, row_hash: hashOf(leaf) }
}

t.test('threat 27: every way of tampering with a row is found, and the first bad row is named', async (t) => {
  const { rows } = await cleanLog(t.testdir(), 60)
  t.match(await verifyRows(rows), { ok: true, rows: 120, streams: 1, open_decisions: 0 })
  const missed: string[] = []
  for (const at of [2, 3, 59, 60, 118]) {
    for (const { name, rows: tampered, firstBad } of tamperings(rows, at)) {
      const verdict = await verifyRows(tampered)
      if (verdict.ok || verdict.first_bad?.seq !== firstBad)
        missed.push(`${name}: ${JSON.stringify(verdict)}`)
    }
  }
  t.same(missed, [])
})

t.test('threat 27: a bit flipped anywhere in the text of a row is found', async (t) => {
  const { rows } = await cleanLog(t.testdir(), 10)
  const victim = rows[9]
  if (!victim) throw new Error('the log is too short')
  let found = 0
  const flips: [string, StoredRow][] = Object.entries(victim)
    .filter((pair): pair is [string, string] => typeof pair[1] === 'string')
    .flatMap(([column, value]) =>
      Array.from(value, (_, at): [string, StoredRow] => [
        `${column}[${at}]`,
        { ...victim, [column]: flipped(value, at) },
      ]),
    )
  for (const [place, row] of flips) {
    const verdict = await verifyRows(rows.with(9, row))
    if (verdict.first_bad?.seq === 10 || (place.startsWith('stream') && !verdict.ok)) found += 1
    else t.fail(`${place} was not found`)
  }
  t.equal(found, flips.length, `${found} of ${flips.length} flips`)
})

t.test('threat 27: a bit flipped anywhere in the bytes of an export is found', async (t) => {
  const { rows } = await cleanLog(t.testdir(), 2)
  const log = Buffer.from(rows.map((row) => `${exportLine(row)}\n`).join(''))
  const isWhole = async (bytes: Buffer) => {
    try {
      return (await verifyRows(exportedRows(streamLines(inPieces(bytes))))).ok
    } catch (error) {
      if (error instanceof NotAnExport) return false
      throw error
    }
  }
  t.ok(await isWhole(log))
  const missed: number[] = []
  for (let at = 0; at < log.length; at += 1) {
    const tampered = Buffer.from(log)
    tampered[at] = (log[at] ?? 0) ^ (1 << (at % 8))
    if (await isWhole(tampered)) missed.push(at)
  }
  t.same(missed, [], `${log.length} flips`)
})

t.test('docs/ledger.md#row: a row that was sealed again breaks the chain at the next one', async (t) => {
  const { rows } = await cleanLog(t.testdir(), 10)
  const [first, second] = rows
  if (!first || !second) throw new Error('the log is too short')
  const forged = resealed({ ...second, status: 'denied' })
  t.match(await verifyRows(rows.with(1, forged)), {
    ok: false,
    rows: 2,
    first_bad: { stream: 'main', seq: 3 },
  })
  const loose = resealed({ ...first, detail: '{"b":1,"a":1}' })
  t.match(await verifyRows([loose]), {
    ok: false,
    first_bad: { seq: 1, problem: /not a canonical JSON object/ },
  })
  t.match(await verifyRows([resealed({ ...first, detail: '[]' })]), { ok: false, first_bad: { seq: 1 } })
})

t.test('docs/ledger.md#streams: each stream is a chain of its own, in any mixture', async (t) => {
  const { rows } = await cleanLog(t.testdir(), 3)
  let prev_hash = '0'.repeat(64)
  const other = rows.map((row) => {
    const moved = resealed({ ...row, stream: 'other', prev_hash })
    prev_hash = moved.row_hash
    return moved
  })
  const mixed = rows.flatMap((row, index) => [row, ...other.slice(index, index + 1)])
  t.match(await verifyRows(mixed), { ok: true, rows: 12, streams: 2 })
  t.match(await verifyRows(mixed.toSpliced(3, 1)), { ok: false, first_bad: { stream: 'other', seq: 2 } })
})

t.test(
  'docs/ledger.md#verifying: clean logs of every size raise no alarm, and open decisions are counted, not blamed',
  async (t) => {
    t.same(await verifyRows([]), { ok: true, rows: 0, streams: 0, open_decisions: 0 })
    const { rows } = await cleanLog(t.testdir(), 50)
    const verdicts: LedgerVerdict[] = []
    for (let length = 1; length <= rows.length; length += 1)
      verdicts.push(await verifyRows(rows.slice(0, length)))
    t.ok(verdicts.every(({ ok }) => ok))

    const file = await scratchDatabase(t.testdir())
    const ledger = await open(file)
    await ledger.commit({
      entries: [entry({ request_id: 'a' }), entry({ request_id: 'b' }), entry({ status: 'denied' })],
    })
    await ledger.commit({ entries: [entry({ request_id: 'a', status: 'error' })] })
    await ledger.close()
    t.match(await verifyFile(file), { ok: true, open_decisions: 1 })
  },
)

t.test('T11 rows that an index was made to leave out are still read from the table', async (t) => {
  const { file } = await cleanLog(t.testdir(), 5)
  withRaw(file, (db) => {
    db.exec("drop trigger audit_rows_update; update audit_rows set principal_id = 'evil' where seq = 4")
    db.unsafeMode(true)
    db.pragma('writable_schema = on')
    db.exec("delete from sqlite_schema where type = 'index' and tbl_name = 'audit_rows'")
  })
  t.match(await verifyFile(file), { ok: false, rows: 3, first_bad: { seq: 4 } })
})

async function* inPieces(bytes: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += 1_000) yield bytes.subarray(at, at + 1_000)
}

function flipped(text: string, at: number): string {
  return text.slice(0, at) + String.fromCharCode(text.charCodeAt(at) ^ 1) + text.slice(at + 1)
}

t.test('docs/ledger.md#versions: rows of version 1 and, behind them, of version 2 verify', async (t) => {
  const rows = chained(['1', '1', '2', '2'])
  t.match(await verifyRows(rows), { ok: true, rows: 4 })
  t.match(await verifyRows(chained(['2', '2'])), { ok: true, rows: 2 })
  t.match(await verifyRows(chained(['1', '2', '1'])), { first_bad: { seq: 3, problem: /version 1, behind/ } })
  t.match(await verifyRows(chained(['1', '3'])), { first_bad: { seq: 2, problem: /was changed/ } })
  const lines = rows.map((row) => exportLine(row))
  t.match(lines, [/"v":1,/, /"v":1,/, /"v":2,/, /"v":2,/])
  t.match(await verifyRows(exportedRows(streamLines(inPieces(Buffer.from(lines.join('\n')))))), {
    ok: true,
    rows: 4,
  })
})

t.test('docs/ledger.md#export: names of users stand outside the hash, and nothing else does', async (t) => {
  const [row] = chained(['2'])
  if (!row) throw new Error('the log is too short')
  const verdictOf = (line: string) => verifyRows(exportedRows(streamLines(inPieces(Buffer.from(line)))))
  for (const names of [
    { principal_name: 'acme::user::zoe' },
    { subject_name: 'acme::user::zo"e,"tool":' },
    { principal_name: 'a', subject_name: 'b' },
  ]) {
    const line = exportLine(row, names)
    t.match(JSON.parse(line), { ...names, row_hash: row.row_hash })
    t.equal(canonicalize(JSON.parse(line)), line, 'the line is canonical')
    t.match(await verdictOf(line), { ok: true, rows: 1 })
  }
  const line = exportLine(row, { principal_name: 'a' })
  for (const forged of [
    line.replace('"principal_name":"a"', '"principal_name":7'),
    line.replace('"principal_name":"a"', '"principal_name":"a","principal_name":"a"'),
    line.replace('"principal_name":"a"', '"principal_nick":"a"'),
    line.replace(',"principal_name":"a"', '').replace('{', '{"principal_name":"a",'),
  ])
    t.match(await verdictOf(forged), { ok: false, first_bad: { seq: 1 } }, forged)
})

t.test(
  'docs/ledger.md#row: columns of another type, and numbers that are no integers, are found',
  async (t) => {
    const [first, row] = chained(['2', '2'])
    if (!first || !row) throw new Error('the log is too short')
    const verdictOf = (forged: StoredRow) =>
      verifyRows(
        exportedRows(streamLines(inPieces(Buffer.from(`${exportLine(first)}\n${exportLine(forged)}`)))),
      )
    t.match(await verdictOf(row), { ok: true, rows: 2 })
    // As somebody writes them who has this code.
    const forged = (values: object) => resealed({ ...row, ...values })
    const columns = [
      'recorded_at',
      'status',
      'config_digest',
      'version',
      'request_id',
      'model',
      'tool',
      'dpop_jkt',
    ]
    for (const name of [...columns, 'principal_id', 'principal_type', 'provider', 'cert_thumbprint'])
      for (const value of [5, true, [], {}, '\ud800'])
        t.match(
          await verdictOf(forged({ [name]: value })),
          { ok: false, rows: 1, first_bad: { seq: 2 } },
          name,
        )
    for (const name of ['recorded_at', 'status', 'config_digest', 'version', 'stream'])
      t.match(await verdictOf(forged({ [name]: null })), { ok: false, rows: 1, first_bad: { seq: 2 } }, name)
    for (const number of ['1.5', '9007199254740992', '-9007199254740992', '1e+21', '[[0.5]]', '{"b":1.5}'])
      t.match(
        await verdictOf(forged({ detail: `{"a":${number}}` })),
        { rows: 1, first_bad: { seq: 2 } },
        number,
      )
    for (const number of ['9007199254740991', '-9007199254740991', '0', '"1.5"'])
      t.match(await verdictOf(forged({ detail: `{"a":${number}}` })), { ok: true, rows: 2 }, number)
  },
)

t.test(
  'docs/ledger.md#verifying: a first line with the columns of a row is a row, whatever is wrong',
  async (t) => {
    const [row] = chained(['2'])
    if (!row) throw new Error('the log is too short')
    const verdictOf = (members: object) =>
      verifyRows(exportedRows(streamLines(inPieces(Buffer.from(JSON.stringify(members))))))
    const line: Record<string, unknown> = JSON.parse(exportLine(row))
    t.match(await verdictOf(line), { ok: true, rows: 1 })
    t.match(await verdictOf({ ...line, stream: 5 }), { ok: false, first_bad: { stream: 'main', seq: 1 } })
    for (const name of Object.keys(line)) {
      const { [name]: _, ...rest } = line
      await t.rejects(verdictOf(rest), { message: /first line is not a row/ }, name)
    }
    const second = `${JSON.stringify(line)}\n${JSON.stringify({ ...line, stream: 5 })}`
    const again = await verifyRows(exportedRows(streamLines(inPieces(Buffer.from(second)))))
    t.match(again, { rows: 1, first_bad: { stream: 'main', seq: 1 } }, 'it is named by its own seq')
  },
)

/** A chain with a row of each version, which need not be one that there is. */
function chained(versions: readonly string[]): readonly StoredRow[] {
  let prev_hash = '0'.repeat(64)
  return versions.map((version, index) => {
    const row = rowOf(entry(), index + 1, prev_hash)
    const leaf = row.leaf.replace(/"v":\d,"version"/, `"v":${version},"version"`)
    prev_hash = hashOf(leaf)
    return { ...row, row_hash: prev_hash, leaf }
  })
}
