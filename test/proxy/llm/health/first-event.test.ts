import { Readable } from 'node:stream'
import t from 'tap'
import { Refusal } from '../../../../plugins/refusal.ts'
import { CallHangup } from '../../../../proxy/http/open-calls.ts'
import { failureInFirstEvent, peekFirstEvent } from '../../../../proxy/llm/health/first-event.ts'
import { UpstreamError } from '../../../../proxy/llm/upstream/answer.ts'

const data = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`
const statusOf = (text: string, isWhole = false): number | null | undefined => {
  const found = failureInFirstEvent(Buffer.from(text), isWhole)
  return found ? found.status : found
}

for (const [what, text, status] of [
  [
    'Anthropic is overloaded',
    `event: error\n${data({ type: 'error', error: { type: 'overloaded_error', message: 'x' } })}`,
    529,
  ],
  ['Anthropic limits', `event: error\n${data({ type: 'error', error: { type: 'rate_limit_error' } })}`, 429],
  [
    'Anthropic fails',
    `event: error\r\n${data({ type: 'error', error: { type: 'api_error' } })}`.replaceAll('\n\n', '\r\n\r\n'),
    500,
  ],
  ['OpenAI fails', data({ error: { message: 'x', type: 'server_error', code: null } }), 500],
  ['OpenAI limits', data({ error: { type: 'requests', code: 'rate_limit_exceeded' } }), 429],
  ['OpenRouter names a status', data({ error: { code: 502, message: 'x' }, choices: [] }), 502],
  ['vLLM fails', data({ error: { object: 'error', type: 'InternalServerError', code: 500 } }), 500],
  [
    'Responses fails',
    `event: response.failed\n${data({ type: 'response.failed', response: { error: { code: 'server_error' } } })}`,
    500,
  ],
  [
    'Responses says error',
    `event: error\n${data({ type: 'error', code: 'rate_limit_exceeded', message: 'x' })}`,
    429,
  ],
  ['a server is not available', `\uFEFF\n${data({ error: { type: 'service_unavailable' } })}`, 503],
] as const) {
  await t.test(`an error in place of the first event has a status: ${what}`, (t) => {
    t.equal(statusOf(text), status)
    t.equal(statusOf(text.trimEnd(), true), status, 'without its blank line too, if nothing more comes')
    for (let cut = 1; cut < text.trimEnd().length; cut += 1)
      if (statusOf(text.slice(0, cut)) !== undefined) t.fail(`it was judged by ${cut} bytes`)
    t.end()
  })
}

for (const [what, text] of [
  [
    'a request that is wrong',
    data({ error: { type: 'invalid_request_error', code: 'context_length_exceeded' } }),
  ],
  ['a request that vLLM refuses', data({ error: { type: 'BadRequestError', code: 400 } })],
  ['words that nobody knows', data({ error: { type: 'oops', code: 'boom' } })],
  ['no error', data({ error: null, choices: [] })],
  ['a text', data({ choices: [{ delta: { content: '"error": {"type":"server_error"}' } }] })],
  ['no JSON', 'data: {"error":\n\n'],
  ['the name of another event, as soon as it is there', 'event: message_start\n'],
  ['a comment, as soon as it begins', ':'],
  ['a document', '{'],
  ['something long', `data: {"error":${' '.repeat(16_384)}`],
  ['blank lines without end', '\n'.repeat(16_384)],
] as const)
  await t.test(`a stream is passed on that begins with ${what}`, (t) => {
    t.equal(statusOf(text), null)
    t.end()
  })

/** The bytes that a reader gets of a stream that somebody has looked at before. */
async function readOf(body: Readable): Promise<string> {
  const pieces: Buffer[] = []
  for await (const piece of body) if (Buffer.isBuffer(piece)) pieces.push(piece)
  return Buffer.concat(pieces).toString()
}

await t.test('a stream that was looked at still has all its bytes, however they came', async (t) => {
  for (const pieces of [
    [data({ a: 1 }) + data({ b: 2 })],
    [...data({ a: 1 }).split(''), data({ b: 2 })],
    [': waiting\n', data({ a: 1 })],
    ['data: {"a":1}'],
    [],
  ]) {
    const source = new Readable({ read() {} })
    const peeking = peekFirstEvent(source, new CallHangup())
    for (const piece of pieces) source.push(piece)
    source.push(null)
    const { failure, body } = await peeking
    t.equal(failure, null)
    t.equal(await readOf(body), pieces.join(''))
  }
})

await t.test('nothing waits for a second piece once the first event is no error', async (t) => {
  const source = new Readable({ read() {} })
  const peeking = peekFirstEvent(source, new CallHangup())
  source.push('event: message_start\n')
  t.equal((await peeking).failure, null)
})

await t.test(
  'a stream that breaks before its first event breaks the look, and so does a hangup',
  async (t) => {
    const broken = new Readable({ read() {} })
    const peeking = peekFirstEvent(broken, new CallHangup())
    broken.push('data: {"a"')
    broken.destroy(new UpstreamError('reset', 'gone'))
    await t.rejects(peeking, new UpstreamError('reset', 'gone'))
    const left = new Readable({ read() {} })
    const hangup = new CallHangup()
    const waiting = peekFirstEvent(left, hangup)
    hangup.hangUp()
    left.destroy()
    await t.rejects(waiting, new Refusal('client_gone'))
    t.equal(left.listenerCount('readable'), 0)
  },
)
