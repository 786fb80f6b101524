import t from 'tap'
import { ExactNames, foldedCase, looseName } from '../../../../proxy/mcp/protocol/loose-name.ts'

t.test('H1: names that fold onto each other anywhere in Unicode are one', async (t) => {
  let pairs = 0
  for (let code = 0; code <= 0x1ffff; code += 1) {
    const letter = String.fromCodePoint(code)
    for (const other of new Set([letter.toLowerCase(), letter.toUpperCase()])) {
      if (other === letter || !/^.$/u.test(other)) continue
      // ECMAScript's own simple case folding.
      if (!new RegExp(`^\\u{${code.toString(16)}}$`, 'iu').test(other)) continue
      pairs += 1
      if (foldedCase(`x${letter}`) !== foldedCase(`x${other}`)) t.fail(`U+${code.toString(16)} and ${other}`)
    }
  }
  t.ok(pairs > 2_500, `${pairs} pairs`)
})

t.test('H1: the spellings of one name', async (t) => {
  const names = new ExactNames(['arguments', 'token', 'uri', '_meta', 'requestState'], looseName)
  for (const [name, other] of [
    ['Arguments', 'arguments'],
    ['argument\u017f', 'arguments'],
    ['arguments\0', 'arguments'],
    ['arguments\0x', 'arguments'],
    ['to\u212aen', 'token'],
    ['TO\u212aEN', 'token'],
    ['ur\u0131', 'uri'],
    ['UR\u0130', 'uri'],
    ['meta', '_meta'],
    ['Request-State', 'requestState'],
    ['request_state', 'requestState'],
  ] as const) {
    t.equal(names.mistakenFor(name), other, JSON.stringify(name))
    t.ok(names.areMistaken(['x', name]))
  }
  for (const name of ['arguments', 'argument', 'tokens', 'url', 'x-vendor', '\0', '', '-'])
    t.equal(names.mistakenFor(name), null, JSON.stringify(name))
  const protocol = new ExactNames(['_meta', 'isError'], foldedCase)
  t.equal(protocol.mistakenFor('I\u017fError'), 'isError')
  for (const name of ['meta', 'is_error'])
    t.equal(protocol.mistakenFor(name), null, 'no reader of a message does so')
})
