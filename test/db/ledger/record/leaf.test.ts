import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import fc from 'fast-check'
import t from 'tap'
import { draftOf } from '../../../../db/ledger/record/draft.ts'
import { assembleLeaf, exportLine, GENESIS_HASH, hashOf, leafOf } from '../../../../db/ledger/record/leaf.ts'
import type { JsonObject } from '../../../../db/support/json.ts'
import { anyDetail, anyEntry } from '../../../support/db/any-entry.ts'
import { AT, entry, ORIGIN, rowOf } from '../../../support/db/scratch-ledger.ts'
import { runsOf } from '../../../support/sweep-places.ts'

const first = rowOf(
  entry({ request_id: 'req_é', model: 'a"b\\c\n', detail: { z: 1, a: [true, null, 'x'] } }),
  1,
  GENESIS_HASH,
)

const detailIn = (detail: JsonObject): string => rowOf(entry({ detail }), 1, GENESIS_HASH).detail

t.test(
  'docs/ledger.md#row: the leaf is the RFC 8785 bytes of the row without row_hash, with "v":2 (vector)',
  async (t) => {
    const expected =
      '{"action":"egress_llm_chat","cert_thumbprint":"abababababababababababababababababababababababababababababababab",' +
      '"config_digest":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","detail":{"a":[true,null,"x"],"z":1},' +
      '"dpop_jkt":null,"model":"a\\"b\\\\c\\n","prev_hash":"0000000000000000000000000000000000000000000000000000000000000000",' +
      '"principal_id":"acme::bot","principal_type":"agent","provider":null,"recorded_at":"2026-01-02T03:04:05.006Z",' +
      '"request_id":"req_é","seq":1,"status":"allowed","stream":"main","tool":null,"v":2,"version":"0.6.4"}'
    t.equal(first.leaf, expected)
    t.equal(leafOf(first), expected, 'and read again')
    t.equal(hashOf(expected), createHash('sha256').update(Buffer.from(expected, 'utf8')).digest('hex'))
    t.equal(hashOf(expected), '9c73348850e35fb3e91cb4d17679acf8d2b2d05b88a4b956824e942a1bd1b74a')
  },
)

const anyRow = fc
  .tuple(anyEntry, fc.integer({ min: 1 }))
  .map(([made, seq]) => rowOf(made, seq, hashOf(made.status)))

// What a row keeps of a text, member names aside, said once more.
const kept = (_name: string, value: unknown): unknown =>
  typeof value === 'string' ? value.slice(0, 1_024).toWellFormed().replaceAll('\0', '\uFFFD') : value
const canonicalOf = (value: object): string | undefined =>
  canonicalize(JSON.parse(JSON.stringify(value, kept)))

t.test(
  'docs/ledger.md#row: what is written equals a general RFC 8785 canonicaliser for any row',
  async () => {
    fc.assert(
      fc.property(anyEntry, fc.integer({ min: 1 }), (made, seq) => {
        const { at, ...members } = made
        const place = { stream: 'main', seq, prev_hash: GENESIS_HASH, version: '0.6.4', v: 2 }
        const whole = canonicalOf({ ...members, ...place, recorded_at: new Date(at).toISOString() })
        return rowOf(made, seq, GENESIS_HASH).leaf === whole
      }),
      { numRuns: runsOf(2_000) },
    )
  },
)

t.test('docs/ledger.md#versions: a row that is read gives its leaf again, in either version', async () => {
  fc.assert(
    fc.property(anyRow, (row) => {
      const first = canonicalize({ ...JSON.parse(row.leaf), v: 1 })
      return leafOf(row) === row.leaf && leafOf(row, 1) === first
    }),
    { numRuns: 1_000 },
  )
})

t.test('docs/ledger.md#row: the columns beside the leaf say what it says', async () => {
  fc.assert(
    fc.property(anyEntry, (made) => {
      const draft = draftOf(made, ORIGIN)
      const { recorded_at, request_id, principal_id, action, status } = draft
      const said = JSON.parse(assembleLeaf(draft, GENESIS_HASH, 1))
      return Object.entries({ recorded_at, request_id, principal_id, action, status }).every(
        ([name, value]) => said[name] === value,
      )
    }),
    { numRuns: 1_000 },
  )
})

t.test('docs/ledger.md#row: detail is what a general RFC 8785 canonicaliser makes of it', async (t) => {
  const holds = (given: JsonObject): boolean => detailIn(given) === canonicalOf(given)
  fc.assert(fc.property(anyDetail, holds), { numRuns: runsOf(2_000) })
  const long = 'x'.repeat(1_023)
  t.ok(holds({ zero: -0, least: Number.MIN_SAFE_INTEGER, long: `${long}😀`, longer: `${long}xx` }))
  t.ok(holds({ 10: 1, 9: [2, {}], '😀': [], '\uffee': { b: 1, a: '"' }, '': '\u007f\u2028' }))
  const names = Array.from({ length: 200 }, (_, index) => `n${(index * 7) % 200}`)
  t.ok(holds(Object.fromEntries(names.map((name) => [name, 1]))), 'of many members too')
  t.ok(
    holds({ dpop_jkt: 1, detail: { detail: 'x', dpop_jkt: ',"dpop_jkt":' } }),
    'whatever its members are called',
  )
})

t.test('docs/ledger.md#row: an export line without result and row_hash is the leaf again', async (t) => {
  fc.assert(
    fc.property(anyRow, (row) => {
      const { result: _result, row_hash: _hash, ...rest } = JSON.parse(exportLine(row))
      return canonicalize(rest) === row.leaf
    }),
    { numRuns: 500 },
  )
  const line = exportLine({ ...first, action: 'mcp_tools_call', leaf: '', row_hash: 'h' })
  t.match(
    line,
    '"request_id":"req_é","result":"allowed","row_hash":"h","seq":1',
    'MCP rows say result as well',
  )
})

t.test(
  'threat 29: texts are well-formed, at most 1,024 characters, and hold no raw control character',
  async (t) => {
    const strange = { model: `${'x'.repeat(1_023)}😀`, tool: 'a\ud800b', provider: 'nul\0' }
    const row = rowOf(entry(strange), 1, GENESIS_HASH)
    t.equal(row.model, `${'x'.repeat(1_023)}\ufffd`, 'a pair that the cut halves is not left half')
    t.equal(row.tool, 'a\ufffdb')
    t.equal(row.provider, 'nul\ufffd')
    const { leaf } = rowOf(entry({ model: '\u001b[31m\r\n', detail: { path: '\u0007' } }), 1, GENESIS_HASH)
    t.notOk(Array.from(leaf).some((character) => character < ' '))
  },
)

t.test(
  'docs/ledger.md#row: a detail that has no one canonical form is refused, naming the place',
  async (t) => {
    const refused = (detail: unknown, message: RegExp) =>
      t.throws(() => draftOf(entry({ detail: detail as JsonObject }), ORIGIN), { name: 'TypeError', message })
    refused({ usage: { cost: 1.5 } }, /^audit detail\.usage\.cost is 1\.5/)
    refused({ usage: [{}, { cost: [1.5] }] }, /^audit detail\.usage\[1\]\.cost\[0\] is 1\.5/)
    refused({ n: 2 ** 53 }, /detail\.n/)
    refused({ n: Number.NaN }, /detail\.n/)
    refused({ list: [1, undefined] }, /detail\.list\[1\]/)
    refused({ list: new Array(1) }, /detail\.list\[0\]/)
    refused({ when: new Date(AT) }, /detail\.when/)
    refused({ big: 1n }, /detail\.big/)
    for (const name of ['a\ud800', 'a\\', 'a"', 'a\n', '\0', 'x'.repeat(1_025)])
      refused({ [name]: 1 }, /name cannot be kept/)
    refused([1], /not an object/)
    refused({ list: Array.from({ length: 100 }, () => 'x'.repeat(1_000)) }, /more than 65535/)
    refused({ list: Array.from({ length: 30 }, () => '€'.repeat(1_000)) }, /more than 65535/)
    t.equal(detailIn(JSON.parse('{"__proto__":{"a":1}}')), '{"__proto__":{"a":1}}')
  },
)
