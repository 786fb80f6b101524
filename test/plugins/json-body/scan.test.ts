import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import t from 'tap'
import { scanJson, scanJsonSteps, WatchedNames } from '../../../plugins/json-body/scan.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { diceOf, mutatedBody, scanDifference } from '../../support/plugins/scan-mutations.ts'
import { runsOf } from '../../support/sweep-places.ts'

/** Refusals on top of the grammar: not the subject here. */
const OUR_RULES = /twice|escapes a character|holds more|nested deeper|longer than|byte order mark/
/** A string is read in pieces of so many bytes. */
const PIECE = 262_144

type Read = { readonly value: unknown } | 'refused'

function byJsonParse(text: string): Read {
  try {
    return { value: JSON.parse(text) }
  } catch {
    return 'refused'
  }
}

/** Leaves out what is refused by a rule of ours. */
function byScan(text: string): Read {
  try {
    return { value: scanJson(Buffer.from(text), 0).value }
  } catch (error) {
    if (!(error instanceof Refusal && error.reason === 'body_invalid')) throw error
    fc.pre(!OUR_RULES.test(error.message))
    return 'refused'
  }
}

/** Prototypes, members named __proto__, -0 and the order of members included. */
function readAlike(text: string): boolean {
  const scanned = byScan(text)
  const parsed = byJsonParse(text)
  return isDeepStrictEqual(scanned, parsed) && JSON.stringify(scanned) === JSON.stringify(parsed)
}

const token = fc.constantFrom(
  ...['{', '}', '[', ']', ',', ':', '"', '\\', ' ', '\n', '\t', '\r', '\v', '\u00a0', '\u2028', '\0', '\x1f'],
  ...['{}', '[]', '""', '"a"', '"a":', '"b":1', '"__proto__":', '"constructor":{}', '"0":', '"é":', '"\\n":'],
  ...['true', 'false', 'null', 'True', 'nul', 'NaN', 'Infinity', 'undefined', 'é', '漢', '😀', '/*', "'"],
  ...['0', '-0', '1', '-', '+', '.', 'e', 'E', '01', '1.', '.5', '1e5', '1E+2', '1e-2', '-1.5e3', '1e999'],
  ...['\\"', '\\\\', '\\/', '\\n', '\\x', '\\u', '\\u00', '\\u0041', '\\ud83d', '\\ude00', '\\uD83D\\uDE00'],
)

await t.test('A5: the scan reads what JSON.parse reads, and refuses what it refuses', async () => {
  const tokens = fc.array(token, { maxLength: 24 }).map((parts) => parts.join(''))
  fc.assert(
    fc.property(tokens, (text) => readAlike(text)),
    { numRuns: runsOf(20_000) },
  )
  const inside = tokens.map((text) => `{"a":[${text}],"b":"${text}"}`)
  fc.assert(
    fc.property(inside, (text) => readAlike(text)),
    { numRuns: runsOf(10_000) },
  )
})

await t.test('A5: also a valid text in which a character was changed', async () => {
  const one = fc.constantFrom('"', '\\', ',', ':', '{', '}', '[', ']', '0', '-', ' ', 'e', '.', '\n', '')
  const text = fc.tuple(fc.json({ maxDepth: 4 }), fc.nat(), one, fc.boolean())
  fc.assert(
    fc.property(text, ([json, place, by, isChanged]) => {
      if (!isChanged) return readAlike(json)
      const at = place % json.length
      return readAlike(`${json.slice(0, at)}${by}${json.slice(at + 1)}`)
    }),
    { numRuns: runsOf(5_000) },
  )
})

await t.test('A5: a long string is read the same wherever its pieces are divided', async () => {
  const tail = fc.array(token, { maxLength: 12 }).map((parts) => parts.join(''))
  const filler = fc.constantFrom('a', '\\\\', 'é', '漢', '😀', '\\u0041')
  const text = fc.tuple(filler, fc.integer({ min: -24, max: 4 }), fc.integer({ min: 1, max: 3 }), tail)
  fc.assert(
    fc.property(text, ([unit, offset, pieces, end]) => {
      const length = Buffer.byteLength(unit)
      const many = unit.repeat(Math.floor((pieces * PIECE + offset) / length))
      const plain = 'x'.repeat((pieces * PIECE + offset) % length)
      return readAlike(`["${plain}${many}${end}"]`) && readAlike(`["${plain}${many}${end}","b"]`)
    }),
    { numRuns: 150 },
  )
})

await t.test('A5: invalid UTF-8 is refused wherever it stands', async (t) => {
  const bytes = fc.uint8Array({ minLength: 1, maxLength: 6 }).map((array) => Buffer.from(array))
  const place = fc.constantFrom(0, 40, PIECE - 5, PIECE - 4, PIECE - 3, PIECE - 2, PIECE - 1, PIECE)
  const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  fc.assert(
    fc.property(bytes, place, (odd, before) => {
      const body = Buffer.concat([Buffer.from(`["${'a'.repeat(before)}`), odd, Buffer.from('漢"]')])
      let text: string | null = null
      try {
        text = strict.decode(body)
      } catch {
        // No text at all: it must be refused.
      }
      const parsed = text === null ? 'refused' : byJsonParse(text)
      try {
        return isDeepStrictEqual({ value: scanJson(body).value }, parsed)
      } catch (error) {
        return error instanceof Refusal && parsed === 'refused'
      }
    }),
    { numRuns: 500 },
  )
  t.throws(() => scanJson(Buffer.from([0x22, 0xc3, 0x22])), { message: /UTF-8/ })
})

await t.test('A5: a step is short, whatever is in the text', (t) => {
  const MIB = 1024 * 1024
  const counted = (text: string): number => {
    const steps = scanJsonSteps(Buffer.from(text))
    let count = 1
    while (!steps.next().done) count += 1
    return count
  }
  t.ok(counted(`[${' '.repeat(8 * MIB)}]`) >= 512, 'white space')
  t.ok(counted(`["${'a'.repeat(8 * MIB)}"]`) >= 32, 'one string')
  t.ok(counted(`[${'1,'.repeat(500_000)}1]`) >= 1_900, 'numbers')
  t.ok(counted(`[${'{},'.repeat(99_000)}1]`) >= 380, 'objects')
  t.end()
})

await t.test('A5: two scans in turns do not disturb each other', (t) => {
  const texts = [{ a: 'x'.repeat(200_000) }, { b: Array.from({ length: 20_000 }, (_, i) => ({ i })) }]
  const scans = texts.map((value) => ({ value, steps: scanJsonSteps(Buffer.from(JSON.stringify(value))) }))
  for (let open = scans; open.length > 0; ) {
    open = open.filter(({ value, steps }) => {
      const step = steps.next()
      if (step.done) t.strictSame(step.value.value, value)
      return !step.done
    })
  }
  t.end()
})

await t.test('A5: what costs out of all proportion is refused, and what is next to it is not', (t) => {
  const body = (text: string) => () => scanJson(Buffer.from(text))
  t.doesNotThrow(body(`[${'{},'.repeat(99_998)}{}]`), '100,000 containers')
  t.throws(body(`[${'{},'.repeat(99_999)}{}]`), { message: /100000 objects and arrays/ })
  t.throws(body(`[${'[[]],'.repeat(60_000)}1]`), { message: /100000 objects and arrays/ })
  t.doesNotThrow(body(`{"${'n'.repeat(16_383)}":1}`), 'a name that V8 still hashes')
  t.throws(body(`{"${'n'.repeat(16_384)}":1}`), { message: /name longer than 16383/ })
  t.throws(body(`{"${'n'.repeat(100_000)}":1}`), { message: /name longer than 16383/ })
  t.doesNotThrow(body(`[${'1'.repeat(16_383)}]`), 'a number that nobody writes')
  t.throws(body(`[${'1'.repeat(16_384)}]`), { message: /not valid JSON/ })
  t.end()
})

/** The number of a long run: `MUTATIONS=10000000 node test/plugins/json-body/scan.test.ts`. */
const MUTATIONS = Number(process.env.MUTATIONS ?? 6_000)

await t.test('T14 A5: every verdict, value and place is that of the scan that made each value', (t) => {
  const dice = diceOf(MUTATIONS)
  let difference: string | null = null
  for (let left = MUTATIONS; left > 0 && difference === null; left -= 1) {
    const body = mutatedBody(dice)
    difference = scanDifference(body, left, dice(8) === 0)
    if (difference !== null) t.comment(body.toString('latin1'))
  }
  t.equal(difference, null)
  t.end()
})

await t.test('T14 A5: also where a string is longer than is read at once', (t) => {
  const dice = diceOf(1)
  for (let count = 0; count < 120; count += 1) {
    const before = 'a'.repeat(PIECE + dice(40) - 36) + ['', '\\\\', '\\u0041', 'é', '😀'][dice(5)]
    const fault = ['', '\\x', '\\u00', '\\n', '\u00ff', '"', '\\\\', '\\ud83d'][dice(8)] ?? ''
    const after =
      'b'.repeat(dice(3) === 0 ? PIECE + dice(9) : dice(9)) + ['', '\\n', '\u00ff', '\\\\'][dice(4)]
    const text = `{"model":"${before}${fault}${after}"${dice(4) === 0 ? '' : '}'}`
    const body = Buffer.from(text, dice(2) === 0 ? 'utf8' : 'latin1').subarray(dice(2))
    t.equal(scanDifference(body, dice(4), dice(2) === 0), null, `${fault} of ${count}`)
  }
  t.end()
})

await t.test('T14: the objects with more than 1,000 members are told, wherever they stand', (t) => {
  const members = (count: number) => `{${Array.from({ length: count }, (_, i) => `"k${i}":0`).join()}}`
  const text = `{"a":${members(1_000)},"b":[{"c":${members(1_001)}}],"d":${members(1_001)}}`
  for (const way of [0, 1, 2, 3]) t.equal(scanDifference(Buffer.from(text), way, way % 2 === 0), null)
  const { value, wide } = scanJson(Buffer.from(text))
  const { a, b, d } = value as { a: object; b: [{ c: object }]; d: object }
  t.strictSame(
    [a, b[0].c, d].map((object) => wide.has(object)),
    [false, true, true],
  )
  t.end()
})

t.test(
  'a name that is watched for is seen at every depth, however it is written, and never in a value',
  (t) => {
    const watched = new WatchedNames(['file_id', 'id'])
    const none = { has: () => false }
    const isWatched = (text: string) => scanJson(Buffer.from(text), none, [], watched).isWatched
    for (const text of [
      '{"id":1}',
      '{"a":[[{"b":{"file_id":null}}]]}',
      '{"a":{"f\\u0069le_id":1}}',
      '[{"id":1}]',
    ])
      t.ok(isWatched(text), text)
    for (const text of ['{"a":"id"}', '{"a":"\\"id\\":1"}', '{"ID":1,"ids":2,"xid":3,"file_i":4}', '["id"]'])
      t.notOk(isWatched(text), text)
    t.notOk(scanJson(Buffer.from('{"id":1}')).isWatched, 'nobody watches')
    t.end()
  },
)
