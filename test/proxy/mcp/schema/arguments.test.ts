import fc from 'fast-check'
import t from 'tap'
import { argumentsVerdict } from '../../../../proxy/mcp/schema/arguments.ts'

let schemas = 0

/** Checks with a digest of its own: what one test compiles is not another's. */
function faultOf(inputSchema: unknown, args: unknown = {}): string | null {
  schemas += 1
  return argumentsVerdict({ digest: `test ${schemas}`, inputSchema: () => inputSchema }, args).fault
}
const parsed = (text: string): unknown => JSON.parse(text)
const times = <Value>(length: number, of: (index: number) => Value): Value[] =>
  Array.from({ length }, (_, index) => of(index))
const named = (length: number, of: (index: number) => [string, unknown]): object =>
  Object.fromEntries(times(length, of))

t.test('docs/protocol.md#mcp-order: arguments are checked against the pinned schema', async (t) => {
  const schema = {
    type: 'object',
    properties: {
      path: { type: 'string', minLength: 1 },
      tags: { type: 'array', items: { enum: ['a', 'b'] } },
    },
    required: ['path'],
    additionalProperties: false,
  }
  t.equal(faultOf(schema, { path: 'x', tags: ['a'] }), null)
  t.equal(faultOf(schema, { path: '' }), '/path must NOT have fewer than 1 characters')
  t.equal(
    faultOf(schema, { path: 'x', tags: ['a', 'c'] }),
    '/tags/1 must be equal to one of the allowed values',
  )
  t.equal(faultOf(schema, { path: 'x', more: 's3cret' }), 'must NOT have additional properties: "more"')
  t.equal(faultOf(schema), "must have required property 'path'", 'absent arguments are an empty object')
  for (const args of [null, [], 'x', 1]) t.equal(faultOf(schema, args), 'must be object')
  t.equal(faultOf({ type: 'object' }), null)
})

t.test('no value of the arguments stands in the sentence, and nothing in it hides', async (t) => {
  const schema = {
    type: 'object',
    properties: { a: { const: 'x' } },
    additionalProperties: { pattern: '^a$' },
  }
  t.notMatch(faultOf(schema, { a: 's3cret' }), /s3cret/)
  t.notMatch(faultOf(schema, { b: 's3cret' }), /s3cret/)
  t.match(faultOf(schema, { '\u202eb': 'c' }), /^\/\\u\{202e\}b must match/)
  t.ok((faultOf(schema, { ['b'.repeat(10_000)]: 'c' }) ?? '').length < 310)
})

t.test(
  'MCP 2026-07-28, JSON Schema usage: 2020-12 by default, draft-07 where it is named, others refused',
  async (t) => {
    const tuple = { type: 'object', properties: { a: { prefixItems: [{ type: 'string' }] } } }
    t.match(faultOf(tuple, { a: [1] }), /must be string/)
    t.match(
      faultOf({ $schema: 'https://json-schema.org/draft/2020-12/schema', ...tuple }, { a: [1] }),
      /must be string/,
    )
    const old = { type: 'object', properties: { a: { items: [{ type: 'string' }] } } }
    t.match(
      faultOf({ $schema: 'http://json-schema.org/draft-07/schema#', ...old }, { a: [1] }),
      /must be string/,
    )
    t.match(faultOf(old, { a: [1] }), /unusable: it is not valid/, 'of 2020-12 that is no schema')
    for (const $schema of [
      'http://json-schema.org/draft-04/schema#',
      'https://evil.example/',
      '__proto__',
      7,
    ]) {
      t.match(faultOf({ $schema, type: 'object' }), /its dialect is not supported$/)
    }
  },
)

t.test('a schema that is none is refused, not taken for one that allows all', async (t) => {
  for (const schema of [
    undefined,
    null,
    true,
    [],
    'x',
    { type: 'x' },
    { properties: { a: 5 } },
    { required: 'a' },
  ]) {
    t.match(faultOf(schema), /the schema of this tool is unusable/, JSON.stringify(schema))
  }
})

t.test('references stay within the document (MCP 2026-07-28, $ref resolution)', async (t) => {
  const tree = {
    type: 'object',
    $defs: {
      'a/b %': {
        $anchor: 'node',
        type: 'object',
        properties: { next: { $ref: '#/$defs/a~1b%20%25' } },
        required: ['v'],
      },
    },
    properties: { tree: { $ref: '#node' }, self: { $ref: '#' } },
    additionalProperties: false,
  }
  t.equal(faultOf(tree, { tree: { v: 1, next: { v: 2 } }, self: {} }), null)
  t.match(faultOf(tree, { tree: { v: 1, next: {} } }), /^\/tree\/next must have required property 'v'/)
  t.match(faultOf(tree, { self: { self: { other: 1 } } }), /^\/self\/self must NOT have additional/)
  for (const $ref of [
    'http://a.example/schema',
    'other',
    '__proto__',
    'constructor',
    '#/constructor',
    '#/__proto__',
    '#/const',
    '#/$defs',
    '#/$defs/none',
    '#none',
    '#%',
    7,
  ]) {
    const schema = { type: 'object', const: { a: 1 }, $defs: {}, properties: { a: { $ref } } }
    t.match(faultOf(schema, { a: 1 }), /it refers to a schema outside itself, or to none$/, String($ref))
  }
  const meta = 'https://json-schema.org/draft/2020-12/schema'
  t.match(faultOf({ type: 'object', properties: { a: { $ref: meta } } }), /outside itself/)
})

const D2020 = 'https://json-schema.org/draft/2020-12/schema'
const D2019 = 'https://json-schema.org/draft/2019-09/schema'
const D07 = 'http://json-schema.org/draft-07/schema#'
const text = { type: 'string' }

/** A schema whose property `a` is judged, an `a` that fits, and one that does not. */
const judged: Record<string, readonly [schema: object, fits: unknown, not: unknown]> = {
  'an embedded $id, and a reference relative to it': [
    {
      properties: { a: { $id: 'https://a.example/s/one', $ref: 'two' } },
      $defs: { t: { $id: 'https://a.example/s/two', ...text } },
    },
    'x',
    1,
  ],
  'an embedded $id relative to the document’s': [
    {
      $id: 'https://a.example/s/root',
      properties: { a: { $ref: 'two' } },
      $defs: { t: { $id: './two', ...text } },
    },
    'x',
    1,
  ],
  'a pointer below an embedded $id': [
    {
      $id: 'https://a.example/root',
      properties: { a: { $ref: 'two#/$defs/t' } },
      $defs: { b: { $id: 'two', $defs: { t: text } }, t: { type: 'number' } },
    },
    'x',
    1,
  ],
  'a pointer within an embedded $id, which is its own root': [
    {
      properties: { a: { $id: 'b', $ref: '#/$defs/t', $defs: { t: text } } },
      $defs: { t: { type: 'number' } },
    },
    'x',
    1,
  ],
  'the document by its own $id': [
    {
      $id: 'https://a.example/s',
      properties: { a: { $ref: 'https://a.example/s#/$defs/t' } },
      $defs: { t: text },
    },
    'x',
    1,
  ],
  'the document by its own $id, with a fragment that says nothing, and another spelling of the host': [
    {
      $id: 'https://A.example/s#',
      properties: { a: { $ref: 'https://a.EXAMPLE:443/s#/$defs/t' } },
      $defs: { t: text },
    },
    'x',
    1,
  ],
  'a urn': [
    {
      $id: 'urn:uuid:deadbeef-1234-00ff-ff00-4321feebdaed',
      properties: { a: { $ref: '#/$defs/t' } },
      $defs: { t: text },
    },
    'x',
    1,
  ],
  'an embedded urn, with an anchor': [
    {
      properties: { a: { $ref: 'urn:example:t#one' } },
      $defs: { t: { $id: 'urn:example:t', $defs: { o: { $anchor: 'one', ...text } } } },
    },
    'x',
    1,
  ],
  'one anchor in two resources': [
    {
      properties: { a: { $ref: 'two#x' } },
      $defs: {
        one: { $anchor: 'x', type: 'number' },
        two: { $id: 'two', $defs: { t: { $anchor: 'x', ...text } } },
      },
    },
    'x',
    1,
  ],
  'a dynamic reference that the document overrides': [
    {
      $dynamicAnchor: 'node',
      properties: { a: { $ref: 'list' } },
      maxProperties: 1,
      $defs: {
        list: {
          $id: 'list',
          properties: { a: { $dynamicRef: '#node' } },
          $defs: { n: { $dynamicAnchor: 'node' } },
        },
      },
    },
    { a: { a: { a: {} } } },
    { a: { a: {}, b: 1 } },
  ],
  'both kinds of reference in one schema': [
    {
      properties: { a: { $ref: '#/$defs/t', $dynamicRef: '#n' } },
      $defs: { t: text, n: { $dynamicAnchor: 'n', minLength: 2 } },
    },
    'xx',
    'x',
  ],
  '2019-09, and its recursive reference': [
    {
      $schema: D2019,
      $recursiveAnchor: true,
      properties: { a: { anyOf: [{ $recursiveRef: '#' }, { type: 'number' }] } },
      maxProperties: 1,
    },
    { a: { a: 1 } },
    { a: 1, b: 2 },
  ],
  '2019-09, by http, with a tuple': [
    { $schema: D2019.replace('https', 'http'), properties: { a: { items: [text], additionalItems: false } } },
    ['x'],
    ['x', 1],
  ],
  '2020-12 by http and with a fragment that says nothing': [
    { $schema: `${D2020.replace('https', 'http')}#`, properties: { a: text } },
    'x',
    1,
  ],
  'draft-07: what stands beside a reference says nothing': [
    {
      $schema: D07,
      properties: { a: { $ref: '#/definitions/t', maxLength: 1, title: 'a' } },
      definitions: { t: text },
    },
    'xx',
    1,
  ],
  'draft-07: a reference at the top, beside definitions': [
    {
      $schema: D07,
      $ref: '#/definitions/T',
      definitions: { T: { type: 'object', properties: { a: text } } },
    },
    'x',
    1,
  ],
  'draft-07: $id as an anchor': [
    { $schema: D07, properties: { a: { $ref: '#t' } }, definitions: { t: { $id: '#t', ...text } } },
    'x',
    1,
  ],
  'draft-07: an $id beside a reference is none': [
    {
      $schema: D07,
      properties: { a: { $id: 'https://b.example/', $ref: '#/definitions/t' } },
      definitions: { t: text },
    },
    'x',
    1,
  ],
  'draft-07: $dynamicRef is a word like any other': [
    {
      $schema: D07,
      properties: { a: { ...text, $dynamicRef: '#none', unevaluatedProperties: { $ref: '#none' } } },
    },
    'x',
    1,
  ],
  'a reference to true': [{ properties: { a: { $ref: '#/$defs/t', ...text } }, $defs: { t: true } }, 'x', 1],
  'a reference to false': [
    { properties: { a: { anyOf: [{ $ref: '#/$defs/f' }, text] } }, $defs: { f: false } },
    'x',
    1,
  ],
  'a reference under a keyword that nobody knows': [
    { properties: { a: text }, 'x-more': { $ref: 'https://a.example/', $id: '#%', enum: [], type: 5 } },
    'x',
    1,
  ],
  'references as data': [
    {
      properties: {
        a: {
          enum: ['x', { $ref: '#none' }],
          examples: [{ $ref: '#none' }],
          default: { $ref: '#none', $id: 7 },
          example: { $anchor: '#' },
          'x-y': [{ $ref: '#none' }],
        },
      },
    },
    { $ref: '#none' },
    1,
  ],
  'one $id twice under keywords that nobody knows': [
    {
      properties: { a: text },
      'x-a': { $id: 'https://a.example/', a: 1 },
      'x-b': { $id: 'https://a.example/', a: 2 },
    },
    'x',
    1,
  ],
  'a schema that is kept under a keyword that nobody knows': [
    {
      properties: { a: { $ref: '#/components/schemas/A%20b' } },
      components: { schemas: { 'A b': { items: { $ref: '#/components/schemas/T' } }, T: text } },
    },
    ['x'],
    [1],
  ],
  'a definition that cannot be judged, and that nothing refers to': [
    {
      properties: { a: text },
      $defs: { o: { $ref: 'https://a.example/' } },
      contentSchema: { $ref: '#none' },
    },
    'x',
    1,
  ],
  'names to escape': [
    { properties: { a: { $ref: '#/$defs/%7E1%25~0%22' } }, $defs: { '/%~"': text } },
    'x',
    1,
  ],
  'a property with the name of a keyword': [
    { properties: { a: { properties: { $ref: text, $id: { type: 'number' } } } } },
    { $ref: 'x', $id: 1 },
    { $ref: 1 },
  ],
  'words that only annotate': [
    {
      $comment: 'x',
      $vocabulary: { 'https://a.example/': true },
      properties: {
        a: {
          ...text,
          format: 'email',
          contentMediaType: 'application/json',
          contentSchema: { type: 'number' },
          deprecated: true,
        },
      },
    },
    'no address',
    1,
  ],
  'an enumeration without a value, in one branch': [
    { properties: { a: { anyOf: [{ enum: [] }, text] } } },
    'x',
    1,
  ],
  'unevaluated properties, by a reference': [
    {
      properties: { a: { $ref: '#/$defs/t', unevaluatedProperties: false } },
      $defs: { t: { properties: { b: text } } },
    },
    { b: 'x' },
    { c: 'x' },
  ],
  'multiples of a tenth': [{ properties: { a: { multipleOf: 0.1 } } }, 0.3, 0.35],
  'multiples of a cent': [{ properties: { a: { multipleOf: 0.01 } } }, 19.99, 19.999],
  'multiples that are far apart': [{ properties: { a: { multipleOf: 1e-8 } } }, 12391239123, 1e-9],
  'multiples of a half, of a large number': [{ properties: { a: { multipleOf: 0.5 } } }, 1e308, 0.25],
  'integers in any form': [
    { properties: { a: { items: { type: 'integer' } } } },
    parsed('[1.0, 1e2, -0, 1E+2]'),
    [1.5],
  ],
  'numbers that are one': [{ properties: { a: { uniqueItems: true } } }, [1, '1', true], parsed('[1, 1.0]')],
  'a constant in another form': [{ properties: { a: { const: parsed('1.0') } } }, parsed('1e0'), '1'],
}

t.test('what a standard calls valid can be called, and is judged by it', async (t) => {
  for (const [what, [schema, fits, not]] of Object.entries(judged)) {
    t.equal(faultOf({ type: 'object', ...schema }, { a: fits }), null, what)
    t.type(faultOf({ type: 'object', ...schema }, { a: not }), 'string', what)
    t.notMatch(faultOf({ type: 'object', ...schema }, { a: not }), /unusable/, what)
  }
  t.match(faultOf({ type: 'object', properties: { a: { enum: [] } } }, { a: 1 }), /^\/a /)
})

t.test('what cannot be judged is said, with its place', async (t) => {
  const refused: Record<string, readonly [object, string]> = {
    'another document': [
      { properties: { a: { $ref: 'https://a.example/' } } },
      'in properties.a it refers to a schema outside itself, or to none',
    ],
    'an $id of two schemas': [
      { properties: { a: { $ref: 'b' } }, $defs: { one: { $id: 'b' }, two: { $id: 'b' } } },
      'in properties.a it refers to a schema outside itself, or to none',
    ],
    'an anchor of another resource': [
      { properties: { a: { $ref: '#t' } }, $defs: { b: { $id: 'b', $defs: { t: { $anchor: 't' } } } } },
      'in properties.a it refers to a schema outside itself, or to none',
    ],
    'an $id under a keyword that nobody knows': [
      { properties: { a: { $ref: 'https://a.example/t' } }, 'x-t': { $id: 'https://a.example/t' } },
      'in properties.a it refers to a schema outside itself, or to none',
    ],
    'a dynamic reference with two meanings': [
      {
        properties: { a: { $ref: 'one' } },
        $defs: {
          one: { $id: 'one', $dynamicAnchor: 'n', items: { $dynamicRef: '#n' } },
          two: { $id: 'two', $dynamicAnchor: 'n' },
        },
      },
      'in $defs.one.items it refers to a schema outside itself, or to none',
    ],
    'a list of keywords': [
      { properties: { a: { $ref: '#/properties' } } },
      'in properties.a it refers to a schema outside itself, or to none',
    ],
    'an embedded schema of another dialect': [
      { properties: { a: { $id: 'b', $schema: D07 } } },
      'it embeds a schema of another dialect',
    ],
    'a circle of two': [
      {
        allOf: [{ $ref: '#/$defs/b' }],
        $defs: { b: { oneOf: [{ $ref: '#/$defs/c' }] }, c: { $ref: '#/$defs/b' } },
      },
      'its references lead round in a circle',
    ],
  }
  for (const [what, [schema, problem]] of Object.entries(refused)) {
    const fault = faultOf({ type: 'object', ...schema }, { a: 1 })
    t.equal(fault, `cannot be checked, because the schema of this tool is unusable: ${problem}`, what)
  }
})

t.test('what one schema declares is not known to another', async (t) => {
  t.equal(faultOf({ $id: 'https://a.example/s', type: 'object', properties: { a: { $id: 'b' } } }), null)
  t.match(faultOf({ $id: 'https://a.example/s', type: 'object', required: ['x'] }), /required property/)
  t.match(faultOf({ type: 'object', $ref: 'https://a.example/s' }), /outside itself/)
})

t.test('the compiler gives a schema no other meaning than JSON Schema does', async (t) => {
  t.match(faultOf({ $async: true, type: 'object', required: ['a'] }), /required property/)
  t.equal(
    faultOf({ id: 'x', type: 'object', properties: { a: { nullable: true, format: 'x' } } }, { a: 1 }),
    null,
  )
  t.match(
    faultOf({ type: 'object', properties: { a: { type: 'number' } } }, parsed('{"a":1e400}')),
    /must be number/,
  )
  t.match(faultOf({ type: 'object', required: ['constructor'] }), /required property 'constructor'/)
  t.match(
    faultOf({ type: 'object', properties: { toString: { type: 'number' } } }, { toString: 'x' }),
    /must be number/,
  )
  t.equal(faultOf({ type: 'object', properties: { toString: { type: 'number' } } }), null)
  const unique = { type: 'object', properties: { a: { uniqueItems: true } } }
  t.match(
    faultOf(unique, {
      a: [
        { x: 1, y: [2] },
        { y: [2], x: 1 },
      ],
    }),
    /must not have an item twice/,
  )
  t.equal(faultOf(unique, { a: [1, '1', [1], { 1: 1 }, null, 'null'] }), null)
})

t.test('threat 9: a member named __proto__ is refused wherever it stands', async (t) => {
  t.match(faultOf({ type: 'object' }, parsed('{"a":[{"__proto__":{"polluted":1}}]}')), /__proto__/)
  t.match(faultOf(parsed('{"type":"object","properties":{"__proto__":{"type":"string"}}}')), /unusable/)
  t.equal(Reflect.get({}, 'polluted'), undefined)
})

t.test('no text of a schema becomes code', async (t) => {
  const hostile = [
    '"]);globalThis.pwned=1;//',
    "');globalThis.pwned=1;//",
    '`+(globalThis.pwned=1)+`',
    `\${globalThis.pwned=1}`,
    '\u2028globalThis.pwned=1//',
    '*/globalThis.pwned=1/*',
    '\\',
    'constructor',
  ]
  const text = fc
    .oneof(fc.constantFrom(...hostile), fc.string({ unit: 'binary' }))
    .filter((name) => name !== '__proto__')
  const property = fc.property(text, text, text, (name, other, value) => {
    fc.pre(name !== other)
    const schema = {
      $id: name,
      title: name,
      $comment: name,
      type: 'object',
      properties: { [name]: { enum: [value], description: other }, [other]: { const: value } },
      required: [name],
      dependentRequired: { [name]: [name, other] },
      $defs: { [name]: { pattern: other, format: name } },
      [`x-${name}`]: value,
    }
    return (
      faultOf(schema, { [name]: value, [other]: value }) === null &&
      faultOf(schema, { [name]: `${value}!`, [other]: value }) !== null &&
      faultOf(schema, {}) !== null
    )
  })
  fc.assert(property, { numRuns: 50 })
  t.equal(Reflect.get(globalThis, 'pwned'), undefined)
})

t.test('a pattern runs in linear time, and one that cannot is not enforced', async (t) => {
  const one = (pattern: string, a: string): string | null =>
    faultOf({ type: 'object', properties: { a: { pattern } } }, { a })
  t.match(one('^(a+)+$', `${'a'.repeat(50_000)}!`), /must match pattern/)
  t.equal(one('^(a+)+$', 'a'.repeat(50_000)), null)
  t.match(one('^[a-z]{2,3}$', 'abcd'), /must match pattern/)
  t.equal(one('^\\p{L}+$', 'é世'), null)
  for (const pattern of [
    '^(?!a)',
    '(a)\\1',
    '^(?:a{1000}){1000}$',
    '^(?:[ab]{10}){90}$',
    'x'.repeat(3000),
    '(?P<n>b)',
    '\\Qb\\E',
    '\\A^b',
  ]) {
    t.equal(one(pattern, 'a'), null, pattern.slice(0, 30))
  }
  const both = { type: 'object', properties: { a: { allOf: [{ pattern: '^a' }, { pattern: 'b$' }] } } }
  t.match(faultOf(both, { a: 'ac' }), /b\$/, 'two patterns are two')
  const byName = {
    type: 'object',
    patternProperties: { '^(?!x)': { type: 'number' }, '^y': { type: 'string' } },
  }
  t.match(faultOf({ ...byName, additionalProperties: false }, { y: 1 }), /must be string/)
  t.equal(faultOf({ ...byName, additionalProperties: false }, { z: 'z' }), null)
})

t.test(
  'MCP 2026-07-28, composition: a schema and arguments that together are too much work are refused',
  async (t) => {
    const deep = times(60, (i) => i).reduce<unknown>((inner) => [inner], 1)
    const fan = { type: 'array', items: { $ref: '#/$defs/n' }, minItems: 1 }
    const cases: Record<string, readonly [object, unknown]> = {
      'references that fan out at every level': [
        {
          type: 'object',
          $defs: {
            n: { anyOf: [...times(20, () => ({ allOf: [fan, { const: 0 }] })), fan, { type: 'integer' }] },
          },
          properties: { a: { anyOf: times(2, () => ({ $ref: '#/$defs/n' })) } },
        },
        { a: deep },
      ],
      'conditions for each of many items': [
        { type: 'object', properties: { a: { items: { allOf: times(900, () => ({ maximum: 1e9 })) } } } },
        { a: times(50_000, (i) => i) },
      ],
      'keys counted again and again': [
        { type: 'object', properties: { a: { allOf: times(900, () => ({ minProperties: 1 })) } } },
        { a: named(20_000, (i) => [`k${i}`, 1]) },
      ],
      'a long text measured again and again': [
        { type: 'object', properties: { a: { allOf: times(900, () => ({ minLength: 1 })) } } },
        { a: 'x'.repeat(1_000_000) },
      ],
      'patterns with more states than memory': [
        {
          type: 'object',
          properties: { a: { allOf: times(9, (i) => ({ pattern: `[ab]*a[ab]{${i + 100}}c` })) } },
        },
        { a: 'ab'.repeat(100_000) },
      ],
      'properties looked for in many items': [
        {
          type: 'object',
          properties: { a: { items: { properties: named(900, (i) => [`p${i}`, { type: 'integer' }]) } } },
        },
        { a: times(40_000, () => ({})) },
      ],
      'objects compared with objects': [
        { type: 'object', properties: { a: { items: { enum: times(2_000, (v) => ({ v })) } } } },
        { a: times(20_000, () => ({ v: 1_999 })) },
      ],
    }
    for (const [what, [schema, args]] of Object.entries(cases)) {
      t.equal(faultOf(schema, args), 'cannot be checked with reasonable effort', what)
    }
    const many = { type: 'object', properties: { a: { uniqueItems: true, items: { type: 'integer' } } } }
    t.equal(faultOf(many, { a: times(100_000, (i) => i) }), null, 'much data alone is none')
    const often = {
      allOf: times(300, () => ({ $ref: '#/$defs/d' })),
      $defs: { d: { allOf: times(300, () => ({ not: {} })) } },
    }
    t.match(
      faultOf({ type: 'object', ...often }),
      /must NOT be valid/,
      'nor is a schema that is referred to often',
    )
  },
)

t.test('a schema that would be too much to compile is refused', async (t) => {
  const nested = times(25, (i) => i).reduce<object>(
    (inner, i) => ({ properties: { [`${'n'.repeat(300)}${i}`]: inner } }),
    { anyOf: times(500, () => ({ minLength: 1 })) },
  )
  const tooLarge: Record<string, object> = {
    'more than 256 KiB': { description: 'x'.repeat(300_000) },
    'more than 1,000 schemas': { properties: named(1_100, (i) => [`p${i}`, {}]) },
    'long places': nested,
    'a list that is repeated for each of its names': {
      dependentRequired: { a: times(5_000, (i) => `p${i}`) },
    },
    'more than 256 patterns': { properties: named(300, (i) => [`p${i}`, { pattern: `^${i}` }]) },
    'heavy patterns': { properties: named(30, (i) => [`p${i}`, { pattern: `^[a-z]{1,900}${i}` }]) },
    'too deep': times(70, (i) => i).reduce<object>((not) => ({ not }), {}),
  }
  for (const [what, schema] of Object.entries(tooLarge)) {
    t.match(faultOf({ type: 'object', ...schema }), /it is too large$/, what)
  }
  t.match(faultOf({ type: 'object', allOf: [{ $ref: '#' }] }), /its references lead round in a circle$/)
  const steps = named(300, (i) => [
    `d${i}`,
    i === 299 ? {} : { allOf: times(2, () => ({ $ref: `#/$defs/d${i + 1}` })) },
  ])
  t.match(
    faultOf({ type: 'object', $defs: steps, $ref: '#/$defs/d0' }),
    /it cannot be compiled: (?:too much work|it is nested too deeply)$/,
    'two to the power of 300',
  )
  t.match(
    faultOf({ type: 'object' }, { a: times(70, (i) => i).reduce<unknown>((inner) => [inner], 1) }),
    /too much/,
  )
})

t.test('a schema is compiled once for its digest', async (t) => {
  for (const inputSchema of [{ type: 'object', required: ['a'] }, { type: 'object' }])
    t.match(
      argumentsVerdict({ digest: 'once', inputSchema: () => inputSchema }, {}).fault,
      /required property/,
    )
})

t.test('property: it neither throws nor takes for ever, whatever schema and arguments are', async () => {
  const keyword = fc.constantFrom(
    ...[
      'type',
      'properties',
      'items',
      'anyOf',
      '$ref',
      '$dynamicRef',
      'pattern',
      'enum',
      'const',
      'if',
      'not',
      'required',
    ],
    ...[
      '$id',
      '$defs',
      'additionalProperties',
      'unevaluatedItems',
      'dependencies',
      'contains',
      '$async',
      'nullable',
      'id',
    ],
  )
  const { node } = fc.letrec((tie) => ({
    node: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom('#', 'string', 'object', 1, true, null, '^(a+)+$'),
      fc.dictionary(keyword, tie('node')),
      fc.array(tie('node'), { maxLength: 3 }),
    ),
  }))
  fc.assert(
    fc.property(node, fc.jsonValue(), (schema, args) => {
      const fault = faultOf(schema, args)
      return fault === null || typeof fault === 'string'
    }),
    { numRuns: 300 },
  )
})

t.test('a schema that grows by what its references name is settled in linear time', async (t) => {
  const grown = (root: object, held: object) =>
    faultOf({
      type: 'object',
      ...root,
      properties: { a: { $ref: '#/x' } },
      x: { allOf: times(9_000, () => held) },
    })
  for (const [what, fault] of [
    ['schemas', () => grown({}, {})],
    ['dynamic references', () => grown({ $dynamicAnchor: 'a' }, { $dynamicRef: '#a' })],
  ] as const) {
    const before = process.cpuUsage()
    t.match(fault(), /it is too large$/, what)
    const { user } = process.cpuUsage(before)
    t.ok(user < 500_000, `${what}: ${user} µs`)
  }
})
