import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { isCapability, parseCapabilities } from '../../db/capabilities.ts'
import { storedCapabilities } from '../../db/principals/pins.ts'

const token = fc.stringMatching(/^[a-z_][a-z0-9_.]{0,63}$/)
const tokens = fc.uniqueArray(token, { maxLength: 64 })

// The grammar again, by hand: the test must not lean on the expression that it tests.
const FIRST = new Set('abcdefghijklmnopqrstuvwxyz_')
const LATER = new Set([...FIRST, ...Array.from('0123456789.')])
const byHand = (text: string): boolean =>
  text.length >= 1 &&
  text.length <= 64 &&
  Array.from(text).every((char, at) => (at === 0 ? FIRST : LATER).has(char))

t.test('§8 any set of up to 64 tokens of the shape is accepted verbatim, in its order', async () => {
  fc.assert(
    fc.property(tokens, (capabilities) =>
      isDeepStrictEqual(parseCapabilities(capabilities), { ok: true, capabilities }),
    ),
  )
})

t.test('§8 a string is a token where it has the shape, and nowhere else', async () => {
  const nearly = fc.oneof(
    token,
    fc.string(),
    token.map((text) => `${text}\n`),
    token.map((text) => `${text}A`),
    token.map((text) => `.${text}`),
  )
  fc.assert(fc.property(nearly, (text) => isCapability(text) === byHand(text)))
})

t.test('§8 the edges of the shape', async (t) => {
  for (const text of ['a', '_', 'llm.chat', 'a..', '__proto__', 'constructor', 'a'.repeat(64)])
    t.ok(isCapability(text), text)
  const wrong = [
    '',
    'A',
    '1a',
    '.a',
    'a-b',
    'a b',
    ' a',
    'a\n',
    'a\0',
    'é',
    'llm.chat,http.get',
    '*',
    'a'.repeat(65),
  ]
  for (const text of wrong) t.notOk(isCapability(text), JSON.stringify(text))
})

t.test('§8 64 entries are accepted, 65 are refused', async (t) => {
  const many = Array.from({ length: 65 }, (_, index) => `t${index}`)
  t.equal(parseCapabilities(many.slice(1)).ok, true)
  t.same(parseCapabilities(many), {
    ok: false,
    errors: [{ field: 'capabilities', message: 'must have at most 64 entries, got 65' }],
  })
})

t.test('§8 every entry that breaks a rule is named, and nothing else', async () => {
  const entry = fc.oneof(token, fc.anything())
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 64 }), (entries) => {
      const parsed = parseCapabilities(entries)
      const wrong = entries.flatMap((value, at) =>
        typeof value === 'string' && byHand(value) ? [] : [`capabilities[${at}]`],
      )
      return parsed.ok ? wrong.length === 0 : wrong.join() === parsed.errors.map(({ field }) => field).join()
    }),
  )
})

t.test('§8 a message says which rule, and does not repeat what was sent', async (t) => {
  t.same(parseCapabilities(['llm.chat', 'LLM <script>', 7]), {
    ok: false,
    errors: [
      { field: 'capabilities[1]', message: 'must match ^[a-z_][a-z0-9_.]{0,63}$' },
      { field: 'capabilities[2]', message: 'must be a string' },
    ],
  })
})

t.test('§8 what is no array is refused', async (t) => {
  fc.assert(
    fc.property(
      fc.anything().filter((value) => !Array.isArray(value)),
      (value) => !parseCapabilities(value).ok,
    ),
  )
  t.match(parseCapabilities({ length: 1, 0: 'llm.chat' }), {
    errors: [{ field: 'capabilities', message: 'must be an array of strings' }],
  })
})

t.test('§3 the list is a set: a token sent twice is held once, where it stood first', async (t) => {
  t.same(parseCapabilities(['b', 'a', 'b', 'a']), { ok: true, capabilities: ['b', 'a'] })
})

t.test('a list of a hundred thousand entries is refused unread, whatever they are', async (t) => {
  const unread = new Proxy(Array.from({ length: 100_000 }), {
    get(target, name) {
      if (name !== 'length') throw new Error(`read ${String(name)}`)
      return target.length
    },
  })
  t.match(parseCapabilities(unread), {
    ok: false,
    errors: [{ message: 'must have at most 64 entries, got 100000' }],
  })
})

t.test('names of the language are tokens like others, and grant nothing by themselves', async (t) => {
  const sent: unknown = JSON.parse('["__proto__", "constructor", "tostring"]')
  t.same(parseCapabilities(sent), { ok: true, capabilities: ['__proto__', 'constructor', 'tostring'] })
  t.notOk(parseCapabilities(JSON.parse('{"__proto__": ["llm.chat"]}')).ok)
})

t.test('a stored set is read back as it was parsed', async () => {
  fc.assert(
    fc.property(tokens, (capabilities) =>
      isDeepStrictEqual(storedCapabilities(JSON.stringify(capabilities)), capabilities),
    ),
  )
})

t.test('the same stored text gives the same set, which nobody can change', async (t) => {
  const held = storedCapabilities('["llm.chat"]')
  t.equal(storedCapabilities('["llm.chat"]'), held)
  t.throws(() => Array.prototype.push.call(held, 'http.get'), TypeError)
  // More different sets than are remembered.
  for (let index = 0; index < 3000; index += 1) storedCapabilities(`["t${index}"]`)
  t.same(storedCapabilities('["llm.chat"]'), ['llm.chat'])
})

t.test('a stored text that is no capability set is a fault, not an empty set', async (t) => {
  for (const text of ['', 'llm.chat', 'null', '{}', '"llm.chat"', '["LLM"]', '[1]']) {
    t.throws(() => storedCapabilities(text), text)
  }
})
