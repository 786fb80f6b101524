import t from 'tap'
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
