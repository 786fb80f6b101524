import fc from 'fast-check'
import t from 'tap'
import { edited, memberText, readObject } from '../../../../proxy/mcp/protocol/json-text.ts'

await t.test(
  'what nobody edits is passed on byte for byte: large numbers, spacing, escapes in values',
  (t) => {
    const text = '{"id": 12345678901234567890, "a" : "\\u00e9\\/" ,"deep":{"x":[1e400, {}]} }'
    const object = readObject(Buffer.from(text))
    t.equal(
      edited(object, { name: '"new"' }),
      '{"id":12345678901234567890,"a":"\\u00e9\\/","deep":{"x":[1e400, {}]},"name":"new"}',
    )
    t.equal(edited(object, { a: null, id: '1' }), '{"id":1,"deep":{"x":[1e400, {}]}}')
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
      t.same(JSON.parse(edited(read, { added: JSON.stringify(value) })), expected)
    }),
  )
  t.end()
})

await t.test('what is no JSON object is refused: an array, a number, trailing data, a name twice', (t) => {
  for (const text of ['[]', '1', 'null', '{} {}', '{"a":1,"a":2}', '{"a":1', '']) {
    t.throws(() => readObject(Buffer.from(text)), text)
  }
  t.end()
})
