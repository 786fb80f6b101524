import t from 'tap'
import { argumentsVerdict } from '../../../../proxy/mcp/schema/arguments.ts'
import { compileSmall, quickFault } from '../../../../proxy/mcp/schema/check.ts'
import { prepareSchema } from '../../../../proxy/mcp/schema/prepare.ts'
import { textOrJsonArguments } from '../../../../proxy/mcp/schema/text-or-json.ts'

let digests = 0
/** Both checks, on a thread and where it serves, must say the same. */
function fault(inputSchema: object, args: object): string | null {
  digests += 1
  const digest = `d${digests}`
  const { fault: said } = argumentsVerdict({ digest, inputSchema: () => inputSchema }, args)
  compileSmall(digest, inputSchema)
  const quick = quickFault(digest, args)
  if (quick !== undefined && quick !== said) throw new Error(`${quick} is not ${said}`)
  return said
}

const A = { properties: { a: { type: 'string' } } }
const LOOKALIKE = /^\S+ has a name that some servers read as (the property|another)/

t.test('H1: an argument is seen to fold onto a property wherever the schema names it', async (t) => {
  const inner = { properties: { x: A } }
  for (const [name, schema, args] of [
    ['at the top', A, { A: 1 }],
    ['required alone', { required: ['a'] }, { a: 1, A: 2 }],
    ['required beside another', { dependentRequired: { z: ['a'] } }, { A: 1 }],
    ['with others beside it', { dependentRequired: { a: ['z'] } }, { A: 1, z: 2 }],
    ['with a schema beside it', { dependentSchemas: { a: {} } }, { A: 1 }],
    ['in a list of draft-07', { dependencies: { z: ['a'] } }, { A: 1 }],
    ['in a branch', { anyOf: [{}, A] }, { A: 1 }],
    ['in a branch that does not hold', { oneOf: [{ required: ['z'], ...A }, {}] }, { A: 1 }],
    ['behind not', { not: { properties: { a: { const: 1 } }, required: ['a'] } }, { A: 1 }],
    ['by a reference', { $ref: '#/$defs/d', $defs: { d: A } }, { A: 1 }],
    [
      'by an anchor',
      { properties: { x: { $ref: '#d' } }, $defs: { d: { $anchor: 'd', ...A } } },
      { x: { A: 1 } },
    ],
    [
      'by a name with a slash',
      { properties: { x: { $ref: '#/$defs/a~1b%25' } }, $defs: { 'a/b%': A } },
      { x: { A: 1 } },
    ],
    ['in draft-07', { $schema: 'http://json-schema.org/draft-07/schema#', dependencies: { z: A } }, { A: 1 }],
    ['by another argument', { dependentSchemas: { z: A } }, { A: 1 }],
    ['in a property', inner, { x: { A: 1 } }],
    ['in items', { properties: { x: { items: A } } }, { x: [{ a: '' }, { A: 1 }] }],
    ['in a tuple', { properties: { x: { prefixItems: [{}, A] } } }, { x: [1, { A: 1 }] }],
    ['in a pattern', { patternProperties: { '^x': A } }, { xy: { A: 1 } }],
    ['in the rest', { additionalProperties: A }, { xy: { A: 1 } }],
    ['in the rest, of one that is required', { required: ['x'], additionalProperties: A }, { x: { A: 1 } }],
    [
      'in the rest of another branch',
      { allOf: [{ additionalProperties: A }, { properties: { x: {} } }] },
      { x: { A: 1 } },
    ],
    [
      'in the rest of a branch, below a property that has its own',
      { allOf: [{ additionalProperties: A }, { properties: { x: { properties: { b: {} } } } }] },
      { x: { b: 1, A: 1 } },
    ],
    [
      'in a recursion',
      { $ref: '#/$defs/n', $defs: { n: { properties: { n: { $ref: '#/$defs/n' } } } } },
      { n: { n: { N: 1 } } },
    ],
    ['twice without a property', {}, { b: 1, B: 2 }],
  ] as const) {
    t.match(fault(schema, args), LOOKALIKE, name)
  }
  for (const [name, schema, args] of [
    ['two properties', { properties: { a: {}, A: {} } }, { a: 1, A: 2 }],
    ['below what no schema speaks of', A, { b: { a: 1, A: 2 } }],
    [
      'beside the rest of its own schema',
      { properties: { x: { type: 'object' } }, additionalProperties: A },
      { x: { A: 1 } },
    ],
    ['names that a schema says alone', { dependentRequired: { a: ['A'] } }, { a: 1, A: 2 }],
    ['another place', { properties: { a: {}, x: {} } }, { x: { A: 1 } }],
    ['data that looks like a schema', { properties: { x: { default: A } } }, { x: { A: 1 } }],
    ['a map', { properties: { x: { additionalProperties: { type: 'string' } } } }, { x: { a: '', A: '' } }],
  ] as const) {
    t.equal(fault(schema, args), null, name)
  }
})

t.test('H1: no schema and no arguments make this check long', async (t) => {
  // Of every place below another one there are as many as sets of branches.
  const names = Array.from({ length: 9 }, (_, i) => `p${i}`)
  const defs = Object.fromEntries(
    names.map((name, i) => [
      name,
      {
        properties: Object.fromEntries(
          names.map((other, j) => [
            other,
            { anyOf: [{ $ref: `#/$defs/p${j}` }, { $ref: `#/$defs/p${(i * j) % 9}` }] },
          ]),
        ),
      },
    ]),
  )
  const tree = (depth: number, at: number): object =>
    depth === 0
      ? {}
      : { [`p${at % 9}`]: tree(depth - 1, at * 7 + 1), [`p${(at + 4) % 9}`]: tree(depth - 1, at * 5 + 2) }
  compileSmall('branches', { $ref: '#/$defs/p0', $defs: defs })
  for (let at = 0; at < 20; at += 1) {
    const before = process.cpuUsage().user
    quickFault('branches', tree(10, at))
    const spent = process.cpuUsage().user - before
    t.ok(spent < 100_000, `${spent} µs`)
  }
  const wide = Object.fromEntries(Array.from({ length: 4_000 }, (_, i) => [`N${i}`, i]))
  t.equal(fault(A, wide), null)
})

t.test('H1d: arguments that are text or JSON are listed for whoever approves the tool', async (t) => {
  const string = { type: 'string' }
  const schema = {
    properties: {
      text: string,
      list: { type: 'array' },
      maybe: { anyOf: [string, { type: 'null' }] },
      types: { type: ['string', 'object'] },
      either: { oneOf: [string, { $ref: '#/$defs/list' }] },
      nullable: { type: 'string', nullable: true },
      choice: { enum: ['a', null] },
      both: { allOf: [{ type: ['string', 'null'] }, string] },
      number: { type: ['string', 'number'] },
      anything: {},
      raw: { title: 'raw', type: 'string', default: null },
      Titled: { title: 'Titled', type: 'string', description: 'Text.' },
      constant: { const: 'a' },
      never: false,
      loop: { $ref: '#/$defs/loop' },
    },
    $defs: { list: { type: 'array' }, loop: { allOf: [{ $ref: '#/$defs/loop' }, string] } },
  }
  const prepared = prepareSchema(schema)
  t.same('schema' in prepared && textOrJsonArguments(prepared.schema), [
    'maybe',
    'types',
    'either',
    'nullable',
    'choice',
    'raw',
  ])
  const DOUBT =
    /is text that some servers read as JSON \((null|array|object)\), which its schema takes, too\./
  for (const args of [
    { maybe: 'null' },
    { types: '{"a":1}' },
    { types: '\u00a0{"a":Infinity}' },
    { either: '[1]' },
    { nullable: 'null' },
    { anything: '[]' },
    { raw: '["/etc/shadow"]' },
  ])
    t.match(fault(schema, args), DOUBT, JSON.stringify(args))
  for (const args of [
    { text: 'null' },
    { maybe: '[1]' },
    { maybe: 'nullable' },
    { either: '{"a":1}' },
    { either: '[a] [b]' },
    { number: '[1]' },
    { anything: 'true' },
    { anything: '1' },
    { both: 'null' },
    { raw: 'text' },
    { Titled: '["a"]' },
  ])
    t.equal(fault(schema, args), null, JSON.stringify(args))
})
