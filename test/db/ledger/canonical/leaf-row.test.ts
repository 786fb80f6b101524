import { deepEqual } from 'node:assert/strict'
import { Readable } from 'node:stream'
import fc from 'fast-check'
import t from 'tap'
import { LeafRow } from '../../../../db/ledger/canonical/leaf-row.ts'
import {
  exportLine,
  GENESIS_HASH,
  hashOf,
  leafOf,
  type StoredRow,
} from '../../../../db/ledger/record/leaf.ts'
import { leafHash } from '../../../../db/ledger/tree/hashes.ts'
import { exportedPages, NotAnExport } from '../../../../db/ledger/verify/export.ts'
import { chainVerifier, type DamagedRow } from '../../../../db/ledger/verify/verify.ts'
import { lineBlocks } from '../../../../scripts/lines.ts'
import { chainOf } from '../../../support/db/history.ts'
import { exportedRows, streamLines } from '../../../support/db/row-by-row.ts'
import { entry } from '../../../support/db/scratch-ledger.ts'
import { runsOf } from '../../../support/sweep-places.ts'

const RUNS = runsOf(3_000)

const source = (bytes: Buffer) => Readable.from([bytes.subarray(0, 700), bytes.subarray(700)])

/** What reading and verifying an export comes to, and how many of its rows were read from their leaves. */
async function found(rows: AsyncIterable<StoredRow | DamagedRow>) {
  const chains = chainVerifier()
  let read = 0
  try {
    for await (const row of rows) {
      if (row instanceof LeafRow) read += 1
      if (!chains.add(row)) break
    }
    return { verdict: chains.verdict(), read }
  } catch (error) {
    if (!(error instanceof NotAnExport)) throw error
    return { verdict: error.message, read }
  }
}

const slowly = (bytes: Buffer) => found(exportedRows(streamLines(source(bytes))))
const quickly = (bytes: Buffer) => found(rowsIn(bytes))

const rowsIn = (bytes: Buffer) => flat(exportedPages(lineBlocks(source(Buffer.from(bytes)))))

async function* flat(pages: ReturnType<typeof exportedPages>) {
  for await (const page of pages) yield* page
}

const DETAILS = [
  {},
  { a: [1, -2, 0, true, null, [], {}, [{ b: 'é' }]], z: { '10': 1, '9': 2, a: '', ab: 'x', b: 1 } },
  { authority: { demanded: ['llm.chat'], revision: 1 }, body_bytes: 999_999_999_999_999, path: '/v1/chat' },
]

/** Rows of each kind that an export has: with and without a result and names, of both versions. */
const rows = chainOf(
  [
    entry({ action: 'service.started', detail: DETAILS[0] ?? {} }),
    entry({ action: 'mcp_tools_call', tool: 'files.read', model: null, detail: DETAILS[1] ?? {} }),
    entry({ principal_type: 'user', model: 'modèle 🙂', detail: DETAILS[2] ?? {} }),
    entry({ request_id: null, status: 'success', provider: 'openai', detail: DETAILS[2] ?? {} }),
  ],
  [1, 2, 2, 2],
)
const names = [{}, { subject_name: 'acme::user::zoë' }, { principal_name: 'acme::user::zoe' }, {}]
const lines = rows.map((row, index) => exportLine(row, names[index]))
const honest = Buffer.from(`${lines.join('\n')}\n`)

t.test('docs/ledger.md#verifying: rows of every kind are read from their leaves, as they are', async (t) => {
  t.same(await quickly(honest), { ...(await slowly(honest)), read: rows.length })
  t.match(await quickly(honest), { verdict: { ok: true, rows: rows.length } })
  let at = 0
  for await (const read of rowsIn(honest)) {
    const row = rows[at]
    if (!row || !(read instanceof LeafRow)) throw new Error(`row ${at} is not read from its leaf`)
    const columns = Object.keys(row) as (keyof StoredRow)[]
    t.same(Object.fromEntries(columns.map((name) => [name, read[name]])), row)
    t.equal(read.line, lines[at])
    t.same(read.leafHash, leafHash(row.leaf))
    at += 1
  }
  t.equal(at, rows.length)
})

t.test('docs/ledger.md#verifying: threads read a long export as one thread does', async (t) => {
  const calls = Array.from({ length: 800 }, (_, n) =>
    entry({ request_id: `req_${n}`, detail: DETAILS[1] ?? {} }),
  )
  const long = Buffer.from(
    chainOf(calls)
      .map((row) => `${exportLine(row)}\n`)
      .join(''),
  )
  const pieces = (bytes: Buffer) =>
    Readable.from(
      Array.from({ length: Math.ceil(bytes.length / 20_000) }, (_, n) =>
        bytes.subarray(n * 20_000, (n + 1) * 20_000),
      ),
    )
  const at = long.length - 5_000
  const edits = [
    long,
    Buffer.concat([long.subarray(0, at), Buffer.from('x'), long.subarray(at)]),
    Buffer.concat([long.subarray(0, at), long.subarray(at + 700)]),
    Buffer.concat([long.subarray(0, at), Buffer.of(0xff), long.subarray(at + 1)]),
    Buffer.concat([long, long.subarray(0, 900)]),
  ]
  for (const [index, bytes] of edits.entries()) {
    const quick = await found(flat(exportedPages(lineBlocks(pieces(bytes)))))
    t.same(quick.verdict, (await found(exportedRows(streamLines(pieces(bytes))))).verdict)
    t.match(quick.verdict, { ok: index === 0 })
    if (index === 0) t.equal(quick.read, calls.length)
  }
})

t.test(
  'docs/ledger.md#verifying: whatever is done to the bytes of an export, both ways of reading it agree',
  async () => {
    const edit = fc.record({
      at: fc.nat(honest.length - 1),
      cut: fc.nat(3),
      put: fc.oneof(
        fc.constantFrom(...EDITS, 'null', '\\u0061', '\0', '"a":1,', ',"result":"allowed"'),
        fc.string({ unit: 'binary', maxLength: 3 }),
      ),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(edit, { minLength: 1, maxLength: 3 }), async (edits) => {
        let bytes: Buffer = honest
        for (const { at, cut, put } of edits)
          bytes = Buffer.concat([bytes.subarray(0, at), Buffer.from(put), bytes.subarray(at + cut)])
        await agree(bytes)
      }),
      { numRuns: RUNS },
    )
  },
)

t.test(
  'docs/ledger.md#row: a detail that is not canonical is found also where it was sealed again',
  async (t) => {
    const json = fc.json({ maxDepth: 4, stringUnit: 'binary' })
    const edited = fc
      .tuple(fc.constantFrom(...DETAILS.map((detail) => JSON.stringify(detail))), fc.nat(), fc.nat(2), TOKEN)
      .map(
        ([text, at, cut, put]) =>
          text.slice(0, at % text.length) + put + text.slice((at % text.length) + cut),
      )
    let [whole, bad] = [0, 0]
    await fc.assert(
      fc.asyncProperty(fc.oneof(json, edited, fc.constantFrom(...ODD)), async (detail) => {
        const verdict = await agree(Buffer.from(sealed(detail)))
        if (typeof verdict === 'object' && verdict.ok) whole += 1
        else bad += 1
      }),
      { numRuns: RUNS },
    )
    t.ok(whole > 0 && bad > 0, `${whole} are canonical, ${bad} are not`)
    for (const detail of ODD) {
      const verdict = await agree(Buffer.from(sealed(detail)))
      t.notOk(typeof verdict === 'object' && verdict.ok, detail)
    }
  },
)

const EDITS = ['{', '}', '[', ']', ',', ':', '"', '\\', ' ', '\n', '0', '-', '1', 'e', '.']

const TOKEN = fc.constantFrom('', '{', '}', '[', ']', ',', ':', '"', '0', '-', '1.5', '"a":1,', 'null', ' ')

const ODD = [
  ...[
    '{"b":1,"a":1}',
    '{"a":1,"a":1}',
    '{"ab":1,"a":1}',
    '{"9":1,"10":1}',
    '{"a":01}',
    '{"a":-0}',
    '{"a":1.5}',
  ],
  ...[
    '{"a":1e3}',
    '{"a":9007199254740993}',
    '{"a":"\\u0061"}',
    '{"a":"\t"}',
    '{"a": 1}',
    '{"a":[1,]}',
    '{,}',
  ],
  ...['[]', 'null', '1', '{"a":{"b":1,"a":1}}', '{"é":1,"z":1}', '{"a":nul}', '{}{}', '{},"detail":{}'],
]

/** An export of one row with this text in the place of its detail, with the digest of that. */
function sealed(detail: string): string {
  const [row] = rows
  if (!row) throw new Error('there is no row')
  const made = { ...row, detail, prev_hash: GENESIS_HASH }
  const leaf = leafOf(made)
  return exportLine({ ...made, leaf, row_hash: hashOf(leaf.toWellFormed()) })
}

async function agree(bytes: Buffer) {
  const [slow, quick] = [await slowly(bytes), await quickly(bytes)]
  deepEqual(quick.verdict, slow.verdict, bytes.toString('latin1'))
  return quick.verdict
}
