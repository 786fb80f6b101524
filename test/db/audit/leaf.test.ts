import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import fc from 'fast-check'
import t from 'tap'
import { draftOf } from '../../../db/audit/draft.ts'
import { exportLine, GENESIS, hashOf, type LeafFields, leafOf } from '../../../db/audit/leaf.ts'
import type { Json, JsonObject } from '../../../db/json.ts'
import { AT, entry } from '../../support/db/scratch-ledger.ts'

const first: LeafFields = {
  ...draftOf(entry({ request_id: 'req_é', model: 'a"b\\c\n', detail: { z: 1, a: [true, null, 'x'] } })),
  stream: 'main',
  seq: 1,
  version: '0.6.4',
  prev_hash: GENESIS,
}

t.test(
  'docs/ledger.md#row: the leaf is the RFC 8785 bytes of the row without row_hash, with "v":2 (vector)',
  async (t) => {
    const expected =
      '{"action":"egress_llm_chat","cert_thumbprint":"abababababababababababababababababababababababababababababababab",' +
      '"config_digest":"cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd","detail":{"a":[true,null,"x"],"z":1},' +
      '"dpop_jkt":null,"model":"a\\"b\\\\c\\n","prev_hash":"0000000000000000000000000000000000000000000000000000000000000000",' +
      '"principal_id":"acme::bot","principal_type":"agent","provider":null,"recorded_at":"2026-01-02T03:04:05.006Z",' +
      '"request_id":"req_é","seq":1,"status":"allowed","stream":"main","tool":null,"v":2,"version":"0.6.4"}'
    t.equal(leafOf(first), expected)
    t.equal(hashOf(expected), createHash('sha256').update(Buffer.from(expected, 'utf8')).digest('hex'))
    t.equal(hashOf(expected), '9c73348850e35fb3e91cb4d17679acf8d2b2d05b88a4b956824e942a1bd1b74a')
  },
)

const text = fc.string({ unit: 'binary', maxLength: 40 })
// What JSON writes without a backslash.
const name = text.map((name) => name.toWellFormed()).filter((name) => JSON.stringify(name) === `"${name}"`)
const anyText = fc.oneof(
  text,
  fc.string({ unit: fc.integer({ min: 0, max: 0xffff }).map((c) => String.fromCharCode(c)) }),
)
const { json } = fc.letrec<{ json: Json }>((tie) => ({
  json: fc.oneof(
    { depthSize: 'small' },
    anyText,
    fc.maxSafeInteger(),
    fc.boolean(),
    fc.constant(null),
    fc.array(tie('json'), { maxLength: 4 }),
    fc.dictionary(name, tie('json'), { maxKeys: 4 }),
  ),
}))
const detail: fc.Arbitrary<JsonObject> = fc.dictionary(name, json, { maxKeys: 6 })
const optional = fc.option(anyText, { nil: null })
const anyRow: fc.Arbitrary<LeafFields> = fc
  .record({
    at: fc.integer({ min: 0, max: 253_402_300_799_999 }),
    texts: fc.array(anyText, { minLength: 3, maxLength: 3 }),
    options: fc.array(optional, { minLength: 8, maxLength: 8 }),
    detail,
    seq: fc.integer({ min: 1 }),
  })
  .map(({ at, texts: [action = '', status = '', digest = ''], options, detail, seq }) => {
    const [request_id = null, principal_id = null, principal_type = null, tool = null] = options
    const [model = null, provider = null, cert_thumbprint = null, dpop_jkt = null] = options.slice(4)
    const given = {
      at,
      action,
      status,
      config_digest: digest,
      detail,
      request_id,
      principal_id,
      principal_type,
      tool,
    }
    const draft = draftOf({ ...given, model, provider, cert_thumbprint, dpop_jkt })
    return { ...draft, stream: 'main', seq, version: '0.6.4', prev_hash: hashOf(status) }
  })

t.test('docs/ledger.md#row: the template equals a general RFC 8785 canonicaliser for any row', async () => {
  fc.assert(
    fc.property(
      anyRow,
      (row) => leafOf(row) === canonicalize({ ...row, detail: JSON.parse(row.detail), v: 2 }),
    ),
    { numRuns: 2_000 },
  )
})

// What a row keeps of a text, member names aside, said once more.
const kept = (_name: string, value: unknown): unknown =>
  typeof value === 'string' ? value.slice(0, 1_024).toWellFormed().replaceAll('\0', '\uFFFD') : value

t.test('docs/ledger.md#row: detail is what a general RFC 8785 canonicaliser makes of it', async (t) => {
  const holds = (given: JsonObject): boolean =>
    draftOf(entry({ detail: given })).detail === canonicalize(JSON.parse(JSON.stringify(given), kept))
  fc.assert(fc.property(detail, holds), { numRuns: 2_000 })
  const long = 'x'.repeat(1_023)
  t.ok(holds({ zero: -0, least: Number.MIN_SAFE_INTEGER, long: `${long}😀`, longer: `${long}xx` }))
  t.ok(holds({ 10: 1, 9: [2, {}], '😀': [], '\uffee': { b: 1, a: '"' }, '': '\u007f\u2028' }))
})

t.test('docs/ledger.md#row: an export line without result and row_hash is the leaf again', async (t) => {
  fc.assert(
    fc.property(anyRow, (fields) => {
      const leaf = leafOf(fields)
      const line = exportLine({ ...fields, leaf, row_hash: hashOf(leaf) })
      const { result: _result, row_hash: _hash, ...rest } = JSON.parse(line)
      return canonicalize(rest) === leaf
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
    const draft = draftOf(entry({ model: `${'x'.repeat(1_023)}😀`, tool: 'a\ud800b', provider: 'nul\0' }))
    t.equal(draft.model, `${'x'.repeat(1_023)}\ufffd`, 'a pair that the cut halves is not left half')
    t.equal(draft.tool, 'a\ufffdb')
    t.equal(draft.provider, 'nul\ufffd')
    const leaf = leafOf({
      ...first,
      ...draftOf(entry({ model: '\u001b[31m\r\n', detail: { path: '\u0007' } })),
    })
    t.notOk(Array.from(leaf).some((character) => character < ' '))
  },
)

t.test(
  'docs/ledger.md#row: a detail that has no one canonical form is refused, naming the place',
  async (t) => {
    const refused = (detail: unknown, message: RegExp) =>
      t.throws(() => draftOf(entry({ detail: detail as JsonObject })), { name: 'TypeError', message })
    refused({ usage: { cost: 1.5 } }, /detail\.usage\.cost is 1\.5/)
    refused({ n: 2 ** 53 }, /detail\.n/)
    refused({ n: Number.NaN }, /detail\.n/)
    refused({ list: [1, undefined] }, /detail\.list\[1\]/)
    refused({ list: new Array(1) }, /detail\.list\[0\]/)
    refused({ when: new Date(AT) }, /detail\.when/)
    refused({ big: 1n }, /detail\.big/)
    for (const name of ['a\ud800', 'a\\', 'a"', 'a\n', '\0']) refused({ [name]: 1 }, /name cannot be kept/)
    refused([1], /not an object/)
    refused({ list: Array.from({ length: 100 }, () => 'x'.repeat(1_000)) }, /more than 65536/)
    t.equal(draftOf(entry({ detail: JSON.parse('{"__proto__":{"a":1}}') })).detail, '{"__proto__":{"a":1}}')
  },
)
