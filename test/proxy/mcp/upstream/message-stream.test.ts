import t from 'tap'
import { EventReader, MessageStream } from '../../../../proxy/mcp/upstream/events.ts'
import type { McpResponseBody } from '../../../../proxy/mcp/upstream/exchange.ts'
import { readEvent } from '../../../../proxy/mcp/upstream/message.ts'
import { failure } from '../../../support/mcp/upstream-calls.ts'
import { eventually } from '../../../support/settled.ts'

const event = (message: object): string => `data: ${JSON.stringify({ jsonrpc: '2.0', ...message })}\n\n`
const NOTE = event({ method: 'notifications/progress' })
const RESPONSE = event({ id: 1, result: {} })

/** The messages of a body that comes in these pieces, and whether it was destroyed. */
function streamOf(pieces: readonly string[]) {
  const left = [...pieces]
  const seen = { destroyed: false, read: 0 }
  const body: McpResponseBody = {
    get complete() {
      return left.length === 0
    },
    read: async () => {
      seen.read += 1
      const piece = left.shift()
      return piece === undefined ? null : Buffer.from(piece)
    },
    async *[Symbol.asyncIterator]() {
      for (let piece = await body.read(); piece !== null; piece = await body.read()) yield piece
    },
    onceOver: () => {},
    destroy: () => {
      seen.destroyed = true
    },
  }
  const events = new EventReader({ maxMessageBytes: 1_000, maxAnswerBytes: 10_000 }, null)
  return { messages: new MessageStream(body, events, (data) => readEvent(data, 1)), seen }
}

t.test('messages that came together are there at once, and nothing is read ahead of them', async (t) => {
  const { messages, seen } = streamOf([NOTE + NOTE, NOTE + RESPONSE])
  const first = messages.next()
  t.type(first, Promise)
  await first
  t.match(messages.next(), { value: { method: 'notifications/progress' } })
  t.equal(seen.read, 1)
})

t.test(
  'messages that came before a broken one in the same piece are handed out before it throws',
  async (t) => {
    const { messages, seen } = streamOf([`${NOTE}data: {"id":1\n\n${RESPONSE}`])
    t.match(await messages.next(), { value: { method: 'notifications/progress' } })
    t.throws(() => messages.next(), failure('failed'))
    messages.close()
    t.ok(seen.destroyed)
  },
)

t.test(
  'behind the response there is nothing, and what follows it is read without being looked at',
  async (t) => {
    const { messages, seen } = streamOf([RESPONSE + NOTE, 'data: rubbish\n\n'])
    const found: unknown[] = []
    for await (const { value } of messages) found.push(value.id)
    t.same(found, [1])
    t.equal(await messages.next(), null)
    t.notOk(seen.destroyed)
    await eventually(
      () => seen.read,
      (read) => read === 3,
    )
  },
)

t.test(
  'a stream that ends before the response is a failure, however many comments it is made of',
  async (t) => {
    const { messages } = streamOf(Array.from({ length: 2_000 }, () => ':\n'))
    await t.rejects(async () => messages.next(), failure('failed'))
  },
)
