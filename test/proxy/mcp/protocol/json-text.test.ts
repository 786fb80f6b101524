import canonicalize from 'canonicalize'
import fc from 'fast-check'
import t from 'tap'
import { scanJson } from '../../../../plugins/json-body/scan.ts'
import {
  applyEdits,
  canonicalizeArguments,
  memberText,
  readObject,
  scannedMember,
} from '../../../../proxy/mcp/protocol/json-text.ts'
import { refused } from '../../../support/refused.ts'

await t.test(
  'what nobody edits is passed on byte for byte: large numbers, spacing, escapes in values',
  (t) => {
    const text = '{"id": 12345678901234567890, "a" : "\\u00e9\\/" ,"deep":{"x":[1e400, {}]} }'
    const object = readObject(Buffer.from(text))
    t.equal(
      applyEdits(object, { name: '"new"' }),
      '{"id":12345678901234567890,"a":"\\u00e9\\/","deep":{"x":[1e400, {}]},"name":"new"}',
    )
    t.equal(applyEdits(object, { a: null, id: '1' }), '{"id":1,"deep":{"x":[1e400, {}]}}')
    t.equal(memberText(object, 'id'), '12345678901234567890')
    t.equal(memberText(object, 'absent'), null)
    t.end()
  },
)

const VALUE = fc.oneof(fc.string(), fc.integer(), fc.array(fc.string()), fc.constant(null))

await t.test('an edit changes its member and nothing else, whatever the object holds', (t) => {
  fc.assert(
    fc.property(fc.dictionary(fc.string({ unit: 'grapheme-ascii' }), VALUE), VALUE, (object, value) => {
      const names = Object.keys(object).filter((name) => JSON.stringify(name) === `"${name}"`)
      const plain = JSON.stringify(Object.fromEntries(names.map((name) => [name, object[name]])))
      const read = readObject(Buffer.from(plain))
      const expected = { ...JSON.parse(plain), added: JSON.parse(JSON.stringify(value)) }
      t.same(JSON.parse(applyEdits(read, { added: JSON.stringify(value) })), expected)
    }),
  )
  t.end()
})

const OBJECT = fc.dictionary(fc.string({ unit: 'grapheme' }), fc.jsonValue({ stringUnit: 'grapheme' }))

await t.test('a member that a scan looks into is taken apart as it is when it is read by itself', (t) => {
  const written = fc
    .tuple(OBJECT, fc.constantFrom(0, 1, '\t'))
    .map(([value, gap]) => JSON.stringify(value, null, gap))
  const fixed = [
    '{}',
    ' { } ',
    '{"a":{},"b":[],"c":[{"d":"}"}]}',
    '{ "a" : "{,:" , "b" : -1.5e3 , "c" : null }',
    '{"a\\u0062":1,"c":"\\""}',
    '{"":"","__proto__":[",",{"":0}]}',
  ]
  const same = (text: string): void => {
    const bytes = Buffer.from(text)
    let first: ReturnType<typeof readObject>
    try {
      first = readObject(bytes)
    } catch {
      return
    }
    const { spans, value, escapedNames } = first
    const whole = Buffer.from(`{"id":1, "params" :${text},"x":{}}`)
    const scan = scanJson(whole, 1, ['params'])
    const member = scannedMember({ bytes: whole, ...scan }, 'params', value)
    t.strictSame([...(member?.spans ?? [])], [...spans])
    t.same([member?.value, member?.escapedNames], [value, escapedNames])
    t.equal(member?.bytes.toString(), text.trim())
  }
  for (const text of fixed) same(text)
  fc.assert(fc.property(written, same))
  t.end()
})

await t.test('RFC 8785 arguments are written as a library writes them that is not ours', (t) => {
  fc.assert(
    fc.property(OBJECT, (args) => {
      let expected: string | undefined
      try {
        expected = canonicalize(args)
      } catch {
        return
      }
      let own: string
      try {
        own = canonicalizeArguments(args)
      } catch {
        t.match(JSON.stringify(args), /\d{16}|e\+/, 'an integer that is not exact')
        return
      }
      t.equal(own, expected)
    }),
  )
  t.equal(
    canonicalizeArguments({ b: [1e-7, -0, 0.1], a: { '€': true, $: null } }),
    '{"a":{"$":null,"€":true},"b":[1e-7,0,0.1]}',
  )
  t.end()
})

await t.test('arguments that two readers could take for two things are refused, and so are too many', (t) => {
  const invalid = refused('mcp_params_invalid')
  for (const value of ['\ud800', 2 ** 53, -(2 ** 53), Number.POSITIVE_INFINITY, { '\udfff': 1 }]) {
    t.throws(() => canonicalizeArguments({ deep: [{ value }] }), invalid)
  }
  t.throws(() => canonicalizeArguments({ many: Array.from({ length: 250_000 }, () => 0) }), invalid)
  t.equal(canonicalizeArguments({ most: [2 ** 53 - 1] }), '{"most":[9007199254740991]}')
  t.end()
})

await t.test('what is no JSON object is refused: an array, a number, trailing data, a name twice', (t) => {
  for (const text of ['[]', '1', 'null', '{} {}', '{"a":1,"a":2}', '{"a":1', '']) {
    t.throws(() => readObject(Buffer.from(text)), text)
  }
  t.end()
})
