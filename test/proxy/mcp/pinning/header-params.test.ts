import fc from 'fast-check'
import t from 'tap'
import {
  headerParamFault,
  headerParamHeaders,
  headerParams,
} from '../../../../proxy/mcp/pinning/header-params.ts'

const annotated = (value: object): object => ({ type: 'object', properties: { value } })
const refused = [
  ['an empty name', annotated({ type: 'string', 'x-mcp-header': '' })],
  ['a space in the name', annotated({ type: 'string', 'x-mcp-header': 'My Region' })],
  ['a line break in the name', annotated({ type: 'string', 'x-mcp-header': 'a\r\nx: y' })],
  ['a name beyond ASCII', annotated({ type: 'string', 'x-mcp-header': 'Région' })],
  ['a name that is no string', annotated({ type: 'string', 'x-mcp-header': 1 })],
  ['the type number', annotated({ type: 'number', 'x-mcp-header': 'A' })],
  ['the type object', annotated({ type: 'object', 'x-mcp-header': 'A' })],
  ['no type', annotated({ 'x-mcp-header': 'A' })],
  ['two types', annotated({ type: ['string', 'null'], 'x-mcp-header': 'A' })],
  ['the top', { type: 'string', 'x-mcp-header': 'A' }],
  ['items', annotated({ items: { type: 'string', 'x-mcp-header': 'A' } })],
  ['a branch', { anyOf: [{ properties: { a: { type: 'string', 'x-mcp-header': 'A' } } }] }],
  ['$defs', { $defs: { a: { type: 'string', 'x-mcp-header': 'A' } } }],
  ['patternProperties', { patternProperties: { a: { type: 'string', 'x-mcp-header': 'A' } } }],
  [
    'a name twice, case aside',
    {
      properties: {
        a: { type: 'string', 'x-mcp-header': 'My' },
        b: { type: 'string', 'x-mcp-header': 'mY' },
      },
    },
  ],
] as const

t.test('x-mcp-header annotations (MCP 2026-07-28, server/tools)', async (t) => {
  for (const [what, schema] of refused) {
    t.throws(() => headerParams(schema), /x-mcp-header/, `${what} is refused`)
  }
  t.same(
    headerParams({
      type: 'object',
      properties: {
        region: { type: 'string', 'x-mcp-header': 'Region' },
        // Not annotations: a property of that name, and data.
        'x-mcp-header': { type: 'string', default: { 'x-mcp-header': 'A' } },
        inner: { properties: { 'dry.run': { type: 'boolean', 'x-mcp-header': 'Dry-Run' } } },
      },
    }),
    [
      { header: 'mcp-param-region', path: ['region'], type: 'string' },
      { header: 'mcp-param-dry-run', path: ['inner', 'dry.run'], type: 'boolean' },
    ],
  )
})

const params = headerParams({
  properties: {
    region: { type: 'string', 'x-mcp-header': 'Region' },
    count: { type: 'integer', 'x-mcp-header': 'Count' },
    dry: { type: 'boolean', 'x-mcp-header': 'Dry' },
    constructor: { type: 'string', 'x-mcp-header': 'C' },
  },
})

t.test('server validation of Mcp-Param headers (MCP 2026-07-28, transports)', async (t) => {
  const fault = (headers: Record<string, string | string[]>, args: unknown): string | null =>
    headerParamFault(params, headers, args)
  const args = { region: 'eu', count: 42, dry: false }
  const headers = { 'mcp-param-region': 'eu', 'mcp-param-count': '42', 'mcp-param-dry': 'false' }
  t.equal(fault(headers, args), null)
  t.equal(fault({ ...headers, 'mcp-param-count': '42.0' }, args), null, 'integers are compared as numbers')
  t.equal(fault({ ...headers, 'mcp-param-region': '=?base64?ZXU=?=' }, args), null)
  t.equal(fault({ ...headers, 'mcp-param-other': 'x' }, args), null, 'unknown ones are not looked at')
  t.equal(fault({}, {}), null)
  t.equal(fault({}, { region: null }), null)
  for (const [what, wrong] of Object.entries({
    'another value': { 'mcp-param-region': 'us' },
    'another case': { 'mcp-param-region': 'EU' },
    'bad Base64': { 'mcp-param-region': '=?base64?ZXU?=' },
    'two values': { 'mcp-param-region': ['eu', 'eu'] },
    'another number': { 'mcp-param-count': '42.00001' },
    'an exponent': { 'mcp-param-count': '4.2e1' },
    'a leading zero': { 'mcp-param-count': '042' },
    hexadecimal: { 'mcp-param-count': '0x2a' },
    'more digits than a double has': { 'mcp-param-count': '42.000000000000000000001' },
    True: { 'mcp-param-dry': 'True' },
  })) {
    t.type(fault({ ...headers, ...wrong }, args), 'string', `${what} is a mismatch`)
  }
  for (const header of Object.keys(headers)) {
    const { [header as keyof typeof headers]: _, ...rest } = headers
    t.match(fault(rest, args), /is missing/)
    t.match(fault(headers, { ...args, [header.slice(10)]: null }), /its argument is not/)
  }
  t.match(fault({ 'mcp-param-count': '9007199254740993' }, { count: 2 ** 53 }), /does not match/)
})

t.test('what is sent upstream repeats the arguments, and passes the validation of a server', async (t) => {
  t.same(headerParamHeaders(params, { region: ' a', count: -7, dry: true }), {
    'mcp-param-region': '=?base64?IGE=?=',
    'mcp-param-count': '-7',
    'mcp-param-dry': 'true',
  })
  t.same(headerParamHeaders(params, { region: null, count: 2 ** 53, dry: {} }), {})
  t.same(headerParamHeaders(params, null), {})
  const args = fc.record(
    { region: fc.string({ unit: 'binary' }), count: fc.maxSafeInteger(), dry: fc.boolean() },
    { requiredKeys: [] },
  )
  fc.assert(
    fc.property(args, (args) => headerParamFault(params, headerParamHeaders(params, args), args) === null),
  )
})
