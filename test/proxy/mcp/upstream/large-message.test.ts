import { isDeepStrictEqual } from 'node:util'
import t from 'tap'
import { scanJson, scanPlacesSteps } from '../../../../plugins/json-body/scan.ts'
import { memberObject } from '../../../../proxy/mcp/protocol/json-text.ts'
import { listItems, readLarge } from '../../../../proxy/mcp/upstream/large-message.ts'
import { messageObject, readMessage } from '../../../../proxy/mcp/upstream/message.ts'
import { failure } from '../../../support/mcp/upstream-calls.ts'

const reading = (traces: readonly string[] = []) => ({
  key: 'r',
  signal: new AbortController().signal,
  traces,
})
const read = (text: string, ...traces: readonly string[]) => readLarge(Buffer.from(text), reading(traces))
const resultOf = (result: unknown): string => `{"jsonrpc":"2.0","id":7,"result":${JSON.stringify(result)}}`
const long = 'ä"\\'.repeat(200_000)
const many = Array.from({ length: 5_000 }, (_, index) => ({ index }))

await t.test('A6: a large message is read as a small one, but for what is large in it', async (t) => {
  const text = resultOf({
    content: [{ type: 'text', text: long }],
    structuredContent: { many },
    isError: true,
    resultType: 'input_required',
    requestState: long,
    _meta: { a: [1, { b: 2 }] },
  })
  const [large, small] = [await read(text), readMessage(Buffer.from(text))]
  t.equal(large.bytes.toString(), text)
  t.same(large.spans, small.spans)
  const { content, structuredContent, ...rest } = small.value.result as Record<string, unknown>
  t.ok(content && structuredContent)
  t.same(large.value, { ...small.value, result: { ...rest, content: [], structuredContent: {} } })
  const [own, whole] = [messageObject(large, 'result'), messageObject(small, 'result')]
  t.same(own?.spans, whole?.spans)
  t.equal(own?.escapedNames, whole?.escapedNames)
  t.ok(own && whole && own.bytes.equals(whole.bytes))
  t.equal(messageObject(large, 'error'), null)
})

await t.test('A6: what is no message is none when it is large, and says so in the same words', async (t) => {
  const filler = ' '.repeat(40_000)
  for (const text of [
    '',
    '[]',
    '{',
    '{"jsonrpc":"2.0"}',
    '{"jsonrpc":"2.0","id":1,"result":[]}',
    '{"jsonrpc":"2.0","id":1,"result":{"a":1,"a":2}}',
    '{"jsonrpc":"2.0","id":1,"result":{}}{}',
  ]) {
    const bytes = Buffer.from(`${filler}${text}`)
    let message = ''
    t.throws(() => {
      try {
        readMessage(bytes)
      } catch (error) {
        message = error instanceof Error ? error.message : ''
        throw error
      }
    })
    await t.rejects(readLarge(bytes, reading()), { ...failure('failed'), message }, text)
  }
  const members = Object.fromEntries(Array.from({ length: 1_001 }, (_, index) => [`m${index}`, 1]))
  await t.rejects(read(resultOf(members)), failure('failed'))
  await t.rejects(read(resultOf({ text: `${long}s3cret-of-ours` }), 's3cret-of-ours'), failure('failed'))
  t.ok(await read(resultOf({ text: long }), 's3cret-of-ours'))
})

/** Texts of which each is taken, or nearly. */
const CORPUS: readonly string[] = [
  '{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"a \\"b\\" \\u00e4 \\n"}],"isError":false}}',
  ' {"jsonrpc" : "2.0" , "id":"7","error":{"code":-1,"message":"ä€😀","data":[1,-0.5e+3,1E9,0,[],{}]}}\r\n',
  '{"jsonrpc":"2.0","method":"notifications/x","params":{"a":{"b":{"c":{"\\u0061":1,"b":2}}},"__proto__":{"x":1}}}',
  '{"jsonrpc":"2.0","id":1,"result":{"a":{"x":{"d":{"\\ud83d\\ude00":1,"😀":2}}}}}',
  '{"jsonrpc":"2.0","id":1,"result":{"a":{"x":{"\\ud800":1,"\\udc00":2,"\ufffd":3,"ÿ":4}}}}',
  `{"jsonrpc":"2.0","id":1,"result":{${Array.from({ length: 20 }, (_, n) => `"k${n}":{"k":[true,false,null]}`).join()}}}`,
  `{"jsonrpc":"2.0","id":1,"result":{"s":{"t":{${Array.from({ length: 18 }, (_, n) => `"k${n}":0`).join()},"k\\u0031":0}}}}`,
  `{"jsonrpc":"2.0","id":1,"result":${'['.repeat(62)}${']'.repeat(62)}}`,
  `{"jsonrpc":"2.0","id":1,"result":{"a":${'{"a":'.repeat(61)}1${'}'.repeat(61)}}}`,
  `{"jsonrpc":"2.0","id":1,"result":{"n":${'1'.repeat(16_383)},"${'n'.repeat(16_383)}":1}}`,
  `{"jsonrpc":"2.0","id":1,"result":{"x":{"y":{"${'\\u0061'.repeat(16_383)}":1}}}}`,
  '["jsonrpc"]',
]
const WRITTEN_IN = [
  '"',
  '\\',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  ' ',
  '0',
  '1',
  '-',
  '.',
  'e',
  'u',
  'n',
  't',
  '\n',
  '\0',
  'ä',
  '\\u0061',
  '"a":1,',
  'k1',
  '\x7f',
]

/** Writes one change into a text, or a few. */
function mutated(bytes: Buffer, random: (below: number) => number): Buffer {
  let text = bytes
  for (let changes = 1 + random(3); changes > 0; changes -= 1) {
    const at = random(text.length + 1)
    const from = random(3) === 0 ? random(text.length + 1) : Math.min(text.length, at + random(4))
    const one =
      random(9) === 0 ? Buffer.from([random(256)]) : Buffer.from(WRITTEN_IN[random(WRITTEN_IN.length)] ?? '')
    text = Buffer.concat([
      text.subarray(0, at),
      ...(random(3) === 0 ? [] : [one]),
      text.subarray(Math.max(at, random(40) === 0 ? from : Math.min(from, at + 3))),
    ])
  }
  return text
}

/** A message as each way reads it; null: it is refused. */
function readings(bytes: Buffer) {
  const tried = <Made>(read: () => Made): Made | null => {
    try {
      return read()
    } catch {
      return null
    }
  }
  const before = tried(() => {
    const { spans, escapedNames } = scanJson(bytes)
    const inner = ['result', 'error', 'params'].flatMap((name) => {
      const found = memberObject({ bytes, spans }, name)
      return found
        ? [[name, { places: placesOf(found.spans, spans.get(name)?.start), escaped: found.escapedNames }]]
        : []
    })
    return { places: placesOf(spans), escaped: escapedNames, inner: Object.fromEntries(inner) }
  })
  const now = tried(() => {
    const steps = scanPlacesSteps(bytes, ['result', 'error', 'params'])
    let step = steps.next()
    while (!step.done) step = steps.next()
    const { spans, objects, escapedNames } = step.value
    const inner = [...objects].map(([name, one]) => [
      name,
      { places: placesOf(one.spans, spans.get(name)?.start), escaped: one.escapedNames },
    ])
    return { places: placesOf(spans), escaped: escapedNames, inner: Object.fromEntries(inner) }
  })
  return [before, now] as const
}

const placesOf = (spans: ReadonlyMap<string, { readonly start: number; readonly end: number }>, from = 0) =>
  [...spans].map(([name, { start, end }]) => [name, start + from, end + from])

const MUTATIONS = Number(process.env.MUTATIONS ?? 10_000)

await t.test(
  'A6: a long text is taken, and its members found, as the reader of short ones does',
  async (t) => {
    let state = 1
    const random = (below: number): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff
      return Math.floor((state / 0x80000000) * below)
    }
    const texts = [...CORPUS, ...Array.from({ length: 4 }, (_, n) => `${' '.repeat(n)}${CORPUS[0]}`)].map(
      (text) => Buffer.from(text),
    )
    let taken = 0
    for (let count = 0; count < MUTATIONS; count += 1) {
      const seed = texts[count % texts.length] ?? Buffer.alloc(0)
      const text = count < texts.length ? seed : mutated(seed, random)
      const [before, now] = readings(text)
      if (before) taken += 1
      if (!isDeepStrictEqual(before, now)) t.same(now, before, text.toString('latin1').slice(0, 400))
    }
    t.ok(taken > MUTATIONS / 50, `${taken} of ${MUTATIONS} are taken`)
    const one = (text: string) => readings(Buffer.from(text)).map((read) => read !== null)
    for (const [text, isTaken] of [
      [`{"a":[${'0,'.repeat(1_000_000)}0]}`, true],
      [`{"a":[${'0,'.repeat(1_000_001)}0]}`, false],
      [`[${'[],'.repeat(99_999)}0]`, true],
      [`[${'[],'.repeat(100_000)}0]`, false],
      [`{"a":{${Array.from({ length: 99_999 }, (_, n) => `"${n}":0`).join()}}}`, true],
      [`{"a":{${Array.from({ length: 100_000 }, (_, n) => `"${n}":0`).join()}}}`, false],
      [`"${'x'.repeat(300_000)}"`, true],
      [`"${'x'.repeat(300_000)}\n"`, false],
      [`"${'ä'.repeat(200_000)}${'\\"'.repeat(100_000)}"`, true],
      ['\ufeff{}', false],
    ] as const)
      t.same(one(text), [isTaken, isTaken], `${text.slice(0, 40)}, ${text.length}`)
  },
)

await t.test('A6: the items of a list are the same, large or small', async (t) => {
  const list = [{ name: 'a', x: long }, { name: 1 }, 'none', { name: 'b' }]
  for (const list_ of [list, 'no list', undefined]) {
    const text = resultOf({ prompts: list_ })
    for (const prefix of ['', 'docs.']) {
      const of = { member: 'prompts', prefix }
      const [large, small] = [
        await listItems(await read(text), of, reading()),
        await listItems(readMessage(Buffer.from(text)), of, reading()),
      ]
      t.same(large, small)
      if (Array.isArray(list_)) t.same(small?.names, ['a', null, null, 'b'])
      else t.equal(small, null)
    }
  }
  const items = await listItems(
    await read(resultOf({ prompts: list })),
    { member: 'prompts', prefix: 'd.' },
    reading(),
  )
  t.equal(items?.texts[3], '{"name":"d.b"}')
})
