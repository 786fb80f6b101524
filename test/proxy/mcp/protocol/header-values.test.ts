import fc from 'fast-check'
import t from 'tap'
import { decodeHeaderValue, encodeHeaderValue } from '../../../../proxy/mcp/protocol/header-values.ts'

t.test('value encoding (MCP 2026-07-28, transports)', async (t) => {
  const table = [
    ['us-west1', 'us-west1'],
    ['Hello, 世界', '=?base64?SGVsbG8sIOS4lueVjA==?='],
    [' padded ', '=?base64?IHBhZGRlZCA=?='],
    ['line1\nline2', '=?base64?bGluZTEKbGluZTI=?='],
    ['=?base64?literal?=', '=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?='],
    ['=?base64?SGk=', '=?base64?SGk='],
    ['', ''],
  ] as const
  for (const [value, header] of table) {
    t.equal(encodeHeaderValue(value), header)
    t.equal(decodeHeaderValue(header), value)
  }
  for (const header of [
    '=?base64?SGVsbG8?=',
    '=?base64?SGVs!!!bG8=?=',
    '=?base64?SGVsbG9=?=',
    '=?base64?_-__?=',
    '=?base64?/w==?=',
    '=?base64?=',
    ' a',
    'a\n',
    'a\0b',
    'é',
  ]) {
    t.equal(decodeHeaderValue(header), null, `${JSON.stringify(header)} is not allowed`)
  }
  fc.assert(
    fc.property(fc.string({ unit: 'binary' }), (value) => {
      const header = encodeHeaderValue(value)
      return /^[\t\x20-\x7e]*$/.test(header) && decodeHeaderValue(header) === value
    }),
  )
})
