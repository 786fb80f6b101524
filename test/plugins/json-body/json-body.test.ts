import { hash } from 'node:crypto'
import fc from 'fast-check'
import t from 'tap'
import { OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import { jsonBody } from '../../../plugins/json-body/json-body.ts'
import { scanJson } from '../../../plugins/json-body/scan.ts'
import { commitmentsBy } from '../../../plugins/pin/pin.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { CallHangup } from '../../../proxy/http/open-calls.ts'
import { heldFor } from '../../support/plugins/arrival.ts'
import { runsOf } from '../../support/sweep-places.ts'

const arrival = (bytes: Buffer | string, headers: Arrival['headers'] = {}): Arrival => ({
  id: 'req_test',
  at: 0,
  method: 'POST',
  path: '/v1/chat/completions',
  query: '',
  params: {},
  headers,
  remoteAddress: '127.0.0.1',
  localUid: null,
  peer: null,
  readBody: async (limit) => {
    const body = Buffer.from(bytes)
    if (body.length > limit) throw new Refusal('body_too_large')
    return body
  },
  held: heldFor(),
  answer: {},
  hangup: new CallHangup(),
  authority: OWN_AUTHORITY,
})

const admit = async (bytes: Buffer | string, headers: Arrival['headers'] = {}) =>
  jsonBody({ limit: 64 * 1024 * 1024 }).admit(arrival(bytes, headers))

const refused = async (name: string, bytes: Buffer | string, message: RegExp): Promise<void> => {
  await t.test(name, async (t) => {
    await t.rejects(admit(bytes), { reason: 'body_invalid', status: 400, message })
  })
}

await t.test(
  '§3 an object is accepted, its bytes untouched and every outermost value where its span says',
  async (t) => {
    const text = ' {\n"model" : "gpt-4o" , "n":-1.5e3,"x":[1,{"model":"inner"}],"b":true,"o":{ } ,"z":null}\n'
    const {
      body,
      json,
      scan: { spans },
    } = await admit(text)
    t.equal(body.toString(), text)
    t.equal(json.model, 'gpt-4o')
    const at = (name: string) => {
      const span = spans.get(name)
      return span && body.toString('utf8', span.start, span.end)
    }
    t.strictSame(Object.keys(json).map(at), [
      '"gpt-4o"',
      '-1.5e3',
      '[1,{"model":"inner"}]',
      'true',
      '{ }',
      'null',
    ])
  },
)

/** Leaves out what is refused for another reason than the one under test. */
function scanned(bytes: Buffer) {
  try {
    return scanJson(bytes)
  } catch (error) {
    fc.pre(!(error instanceof Refusal && error.message.includes('escapes a character')))
    throw error
  }
}

await t.test('§3 the spans of any object are exactly its values', async () => {
  fc.assert(
    fc.property(fc.dictionary(fc.string({ unit: 'binary' }), fc.jsonValue()), fc.nat(3), (value, indent) => {
      const bytes = Buffer.from(JSON.stringify(value, null, indent).toWellFormed())
      const { spans } = scanned(bytes)
      const parsed = JSON.parse(bytes.toString()) as Record<string, unknown>
      for (const [name, expected] of Object.entries(parsed)) {
        const span = spans.get(name)
        if (!span) return false
        const found: unknown = JSON.parse(bytes.toString('utf8', span.start, span.end))
        if (JSON.stringify(found) !== JSON.stringify(expected)) return false
      }
      return spans.size === Object.keys(parsed).length
    }),
  )
})

await t.test(
  'threat 31 whatever the bytes are, the answer is an object or body_invalid, and nothing else',
  async () => {
    const piece = fc.constantFrom(
      '{',
      '}',
      '[',
      ']',
      '"',
      ':',
      ',',
      '\\',
      'a',
      '1',
      ' ',
      '\u00e9',
      '"a":',
      '\\u0061',
    )
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 60 }), async (pieces) => {
        try {
          await admit(pieces.join(''))
          return JSON.parse(pieces.join('')) !== null
        } catch (error) {
          return error instanceof Refusal && error.reason === 'body_invalid'
        }
      }),
      { numRuns: runsOf(2_000) },
    )
  },
)

await refused(
  'T14 invalid UTF-8 is refused, not replaced',
  Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x7d]),
  /UTF-8/,
)
await refused('threat 31 a byte order mark is refused', '\ufeff{"a":1}', /byte order mark/)
await refused(
  'threat 31 a name twice in one object is refused',
  '{"model":"a","model":"b"}',
  /twice.*byte 13/,
)
await refused(
  'threat 31 a name twice by another spelling is refused',
  '{"a":[{"model":"a","m\\u006fdel":"b"}]}',
  /twice/,
)
await refused(
  'threat 31 an outer name with an escape is refused: V8 may read it as another name it has seen',
  '{"jsonrpc":"2.0","metho\\u0064":"tools/call"}',
  /escapes a character in the name/,
)
await refused(
  'threat 31 one level down too',
  '{"params":{"n\\u0061me":"x"}}',
  /escapes a character in the name/,
)
await t.test('§3 deeper down an escape in a name is the caller’s own affair', async (t) => {
  const { json } = await admit('{"tools":[{"na\\u00efve":1}]}')
  t.strictSame(json.tools, [{ naïve: 1 }])
})
await refused('threat 31 a name twice deep inside is refused', '{"a":[{"b":{"c":1,"c":2}}]}', /twice/)
await refused('threat 31 a second JSON value after the first is refused', '{"a":1}{"b":2}', /not valid JSON/)
await refused('threat 31 a trailing comma is refused', '{"a":1,}', /not valid JSON/)
await refused('§3 an empty body is refused', '', /empty/)
await refused('§3 an array is refused', '[{"model":"a"}]', /must be a JSON object/)
await refused('§3 a string is refused', '"model"', /must be a JSON object/)
await refused('§3 null is refused', 'null', /must be a JSON object/)
await refused('§3 a body cut inside a string is refused', '{"a":"b', /inside a string \(at byte 5\)/)
await refused('T14 depth 65 is refused', `{"a":${'['.repeat(64)}${']'.repeat(64)}}`, /nested deeper than 64/)

await t.test('T14 depth 64 is accepted', async (t) => {
  await t.resolves(admit(`{"a":${'['.repeat(63)}${']'.repeat(63)}}`))
})

await t.test('T14 100,000 members are accepted, one more is refused', async (t) => {
  const members = (count: number) => `{${Array.from({ length: count }, (_, i) => `"k${i}":0`).join(',')}}`
  await t.resolves(admit(members(100_000)))
  await t.rejects(admit(members(100_001)), { reason: 'body_invalid', message: /100000 members/ })
})

await t.test('T14 a million and one commas are refused', async (t) => {
  await t.rejects(admit(`{"a":[${'0,'.repeat(1_000_001)}0]}`), { message: /1000000 values/ })
})

await t.test(
  'threat 31 the same name in two objects is not a duplicate, nor is a value that looks like one',
  async (t) => {
    const { json } = await admit(
      '{"a":{"role":"x"},"b":{"role":"a"},"c":["a","a"],"__proto__":{"model":"m"}}',
    )
    t.equal(json.model, undefined)
    t.strictSame(json.b, { role: 'a' })
  },
)

await t.test('T14 strings end where they end, however long and however escaped', async (t) => {
  const strings = [
    '\\',
    '"',
    '\\"',
    '\\\\"',
    'x'.repeat(47),
    'x'.repeat(48),
    `${'x'.repeat(60)}\\`,
    `${'é'.repeat(99)}"`,
  ]
  const padded = strings.flatMap((text) =>
    Array.from({ length: 60 }, (_, i) => 'y'.repeat(i) + text + 'z'.repeat(i)),
  )
  const { json } = await admit(JSON.stringify({ padded, model: 'm' }))
  t.strictSame(json.padded, padded)
  for (const text of padded) {
    const {
      body,
      scan: { spans },
    } = await admit(JSON.stringify({ deep: [{ [text]: text }], text, n: 7 }))
    const { start, end } = spans.get('n') ?? { start: 0, end: 0 }
    if (body.toString('utf8', start, end) !== '7') t.fail(`the member after ${text} is at ${start} to ${end}`)
  }
})

// Each is 5 MB. What is quadratic takes hours with these, so the runner's own limit is the assertion.
for (const [name, text] of [
  ['of opening brackets', '['.repeat(5_000_000)],
  ['of member names', '"a":'.repeat(1_250_000)],
  ['of nested member names', '{"a":'.repeat(1_000_000)],
  ['of backslashes', `{"a":"${'\\'.repeat(5_000_000)}`],
  ['of quotes', '"'.repeat(5_000_001)],
  ['of escaped quotes without an end', `{"a":"${'\\"'.repeat(2_500_000)}`],
  ['of closing brackets', ']'.repeat(5_000_000)],
  ['of colons', `{${':'.repeat(5_000_000)}`],
  ['of empty objects', `{"a":[${'{},'.repeat(999_999)}{}`],
] as const) {
  await refused(`T14 5 MB ${name} are refused`, text, /./)
}

await t.test('T14 5 MB of escaped quotes and of backslashes in one string are read', async (t) => {
  const text = '"'.repeat(1_250_000) + '\\'.repeat(1_250_000)
  t.equal((await admit(JSON.stringify({ text }))).json.text, text)
})

await t.test('§3 a refusal never quotes the body', async (t) => {
  const error = await admit('{"prompt":"my secret"  oops}').catch((error: unknown) => error)
  t.ok(error instanceof Refusal)
  t.notMatch(String((error as Refusal).message), /secret|oops/)
  t.equal((error as Refusal).cause, undefined)
})

await t.test('§3 a body past the limit is refused 413', async (t) => {
  const plugin = jsonBody({ limit: 8 })
  await t.rejects(async () => plugin.admit(arrival('{"a": 12}')), new Refusal('body_too_large'))
})

await t.test('§3 JSON of no stated type, and of the JSON type in UTF-8, is accepted', async (t) => {
  for (const type of [
    'application/json',
    'Application/JSON; charset=UTF-8',
    'application/json;charset="utf-8"',
  ]) {
    await t.resolves(admit('{}', { 'content-type': type }), type)
  }
  await t.resolves(admit('{}'))
  await t.resolves(admit('{}', { 'content-encoding': 'identity' }))
})

await t.test(
  '§3 another content-type, charset or encoding is refused in a sentence that says what to send',
  async (t) => {
    for (const type of [
      'application/x-www-form-urlencoded',
      'text/plain',
      'application/json; charset=utf-16',
      '',
    ]) {
      await t.rejects(
        admit('{}', { 'content-type': type }),
        { reason: 'body_invalid', message: /application\/json/ },
        type,
      )
    }
    for (const encoding of ['gzip', 'br', 'gzip, identity']) {
      await t.rejects(admit('{}', { 'content-encoding': encoding }), {
        reason: 'body_encoded',
        message: /compressed/,
      })
    }
  },
)

await t.test('A5 the commitment to a long body comes with it; to a short one it is made later', async (t) => {
  const long = JSON.stringify({ model: 'm', input: 'é'.repeat(50_000) })
  const {
    json,
    scan: { spans },
    bodySha256,
  } = await admit(long)
  t.strictSame(json, JSON.parse(long))
  t.strictSame([...spans.keys()], ['model', 'input'])
  t.equal(bodySha256, undefined, 'who has no key commits to nothing')
  const commitments = commitmentsBy(Buffer.alloc(32, 7), 'req_1')
  const known = await jsonBody({ limit: 1_000_000 }).admit({ ...arrival(long), commitments })
  t.equal(known.bodySha256, commitments.of('body_sha256', long))
  t.not(known.bodySha256, hash('sha256', long))
  const short = await jsonBody({ limit: 1_000_000 }).admit({ ...arrival('{"model":"m"}'), commitments })
  t.equal(short.bodySha256, undefined)
})

await t.test('A5 a long body of a caller who has hung up is not read', async (t) => {
  const hangup = new CallHangup()
  hangup.hangUp()
  const facts = { ...arrival(JSON.stringify({ input: 'a'.repeat(100_000) })), hangup }
  await t.rejects(async () => jsonBody({ limit: 1_000_000 }).admit(facts), {
    reason: 'client_gone',
    message: /disconnected before the answer/,
  })
})
