import t from 'tap'
import { toolFlags } from '../../../../proxy/mcp/pinning/tool-flags.ts'

const withSchema = (inputSchema: object): readonly string[] => toolFlags({ name: 'a', inputSchema })
const described = (description: string): readonly string[] =>
  toolFlags({ name: 'a', description, inputSchema: { type: 'object' } })

t.test('threat 17: text that hides is flagged wherever it stands', async (t) => {
  t.same(described('a\u200bb'), ['invisible:description U+200B'])
  t.same(described('a\u202eb\u2066'), ['bidi:description U+202E U+2066'])
  t.same(described('a\u{e0041}\u{e007f}'), ['tags:description U+E0041 U+E007F'])
  for (const hidden of [
    '\u00ad',
    '\u2060',
    '\ufeff',
    '\u3164',
    '\ufe0f',
    '\u{e0101}',
    '\0',
    '\x1b',
    '\u2028',
    '\ue000',
  ]) {
    t.match(
      described(`a${hidden}`),
      [/^invisible:description U\+/],
      `U+${hidden.codePointAt(0)?.toString(16)}`,
    )
  }
  t.same(
    withSchema({ type: 'object', properties: { 'p\u200d': { description: 'x\u061c', enum: ['y\u200c'] } } }),
    [
      'invisible:a name in inputSchema.properties U+200D',
      'bidi:inputSchema.properties["p\\u{200d}"].description U+061C',
      'invisible:inputSchema.properties["p\\u{200d}"].enum[0] U+200C',
    ],
  )
  t.match(toolFlags({ annotations: { title: '\u200b' }, inputSchema: {} }), [
    'invisible:annotations.title U+200B',
  ])
})

t.test('text that hides nothing is not flagged', async (t) => {
  t.same(described('Zeile 1\r\n\tZeile 2: 世界, שלום, ⚠️ 1️⃣ 👩‍💻 ✅'), [])
  t.match(described('✅\ufe0f\ufe0f'), [/^invisible/], 'an emoji has one selector')
})

t.test('a schema that arguments cannot be checked against is flagged', async (t) => {
  t.same(withSchema({ $schema: 'http://json-schema.org/draft-04/schema#', type: 'object' }), [
    'dialect_unknown',
  ])
  t.same(withSchema({ type: 'object', description: 'x'.repeat(300_000) }), ['schema_too_large'])
  t.match(withSchema({ type: 'object', required: 'a' }), [/^schema_unusable:it is not valid: \/required /])
  t.match(withSchema({ type: 'object', properties: { a: { $ref: 'http://a.example/' } } }), [
    /^schema_unusable:in properties.a it refers/,
  ])
  t.same(withSchema({ type: 'object', allOf: [{ $ref: '#' }] }), [
    'schema_unusable:its references lead round in a circle',
  ])
  const data = { $ref: 'http://a.example/', 'x-mcp-header': 7 }
  t.same(withSchema({ type: 'object', 'x-more': data, properties: { a: { 'x-more': data } } }), [])
  t.same(withSchema({ type: 'object', properties: { a: { pattern: '(?=a)' }, b: { pattern: '^b$' } } }), [
    'pattern_not_checked:properties.a.pattern',
  ])
  t.same(withSchema({ type: 'object', properties: { a: { type: 'number', 'x-mcp-header': 'A' } } }), [
    'header_annotation_invalid:properties.a: x-mcp-header demands the type string, integer or boolean',
  ])
})

t.test('flags are bounded', async (t) => {
  const properties = Object.fromEntries(Array.from({ length: 200 }, (_, i) => [`p${i}`, { title: '\u200b' }]))
  const flags = withSchema({ type: 'object', properties })
  t.equal(flags.length, 51)
  t.equal(flags.at(-1), 'and 150 more')
  t.ok(withSchema({ ['x'.repeat(5000)]: '\u200b' }).every((flag) => flag.length < 300))
})
