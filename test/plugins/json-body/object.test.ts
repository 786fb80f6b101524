import fc from 'fast-check'
import t from 'tap'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import { scanJson } from '../../../plugins/json-body/scan.ts'

/** What the scan alone makes of a text, or null. */
function scanned(text: string): unknown {
  try {
    const { value } = scanJson(Buffer.from(text))
    return Array.isArray(value) || typeof value !== 'object' ? null : value
  } catch {
    return null
  }
}

/** Texts of members that a reader may stumble over. */
const member = fc.constantFrom(
  ...['"a":1', '"b":"x"', '"a":2', '"\\u0061":3', '"1":4', '"__proto__":5', '"c":1e2', '"d":-0', '"e":1.0'],
  ...[
    '"f":{"g":1}',
    '"h":[1]',
    '"i":"[{"',
    '"j":"\\u0041"',
    '"k":null ',
    '"l":',
    'm:1',
    '"n":"\u00e9\ufffd"',
  ],
)

await t.test('T14 T31 an object is read as the scan reads it, however its members are written', (t) => {
  const text = fc.tuple(fc.array(member), fc.constantFrom('}', ' }', '', '},', '}\n'))
  fc.assert(
    fc.property(text, ([members, end]) => {
      const json = `{${members.join()}${end}`
      t.strictSame(parseJsonObject(Buffer.from(json)), scanned(json), json)
    }),
  )
  t.end()
})

await t.test('T14 a name twice, bytes that are no UTF-8 and a byte order mark are refused', (t) => {
  t.equal(parseJsonObject(Buffer.from('{"a":1,"a":1}')), null)
  t.equal(parseJsonObject(Buffer.from('{"a":"\xff"}', 'latin1')), null)
  t.equal(parseJsonObject(Buffer.from('\ufeff{"a":1}')), null)
  t.strictSame(parseJsonObject(Buffer.from('{"a":1}')), { a: 1 })
  t.end()
})
