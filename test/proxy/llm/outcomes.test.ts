import type { ServerResponse } from 'node:http'
import t, { type Test } from 'tap'
import type { AuditRow } from '../../../db/ledger/read/read.ts'
import { type Identity, sharedGateway, type TestGateway } from '../../support/gateway.ts'
import { rawConnect, requestBytes } from '../../support/raw.ts'
import { settledCalls } from '../../support/settled.ts'

const SSE = 'text/event-stream'
const JSON_TYPE = 'application/json; charset=utf-8'
const CHAT = '/v1/chat/completions'
const MESSAGES = '/v1/messages'
const RESPONSES = '/v1/responses'

const data = (value: unknown): string => `data: ${JSON.stringify(value)}\n\n`
const event = (name: string, value: object): string => `event: ${name}\n${data({ type: name, ...value })}`
const text = (content: string, finish: string | null = null): string =>
  data({ model: 'gpt-test', choices: [{ index: 0, delta: { content }, finish_reason: finish }] })

const DONE = 'data: [DONE]\n\n'
const HI = text('hi')
const STOP = text('', 'stop')
const COUNTED = data({ choices: [], usage: { prompt_tokens: 7, completion_tokens: 3 } })
const START = event('message_start', {
  message: { model: 'claude-test', usage: { input_tokens: 5, output_tokens: 1 } },
})
const DELTA = event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: 'hi' } })
const MESSAGE_END = event('message_delta', {
  delta: { stop_reason: 'end_turn' },
  usage: { output_tokens: 9 },
})
const MESSAGE_STOP = event('message_stop', {})
const CREATED = event('response.created', {
  response: { model: 'gpt-test', status: 'in_progress', error: null },
})
const ended = (status: string, more: object = {}): string =>
  event(`response.${status}`, { response: { model: 'gpt-test', status, error: null, usage: null, ...more } })

type Close = (res: ServerResponse) => void
const end: Close = (res) => void res.end()
/** Without the last chunk. */
const reset: Close = (res) => void setImmediate(() => res.socket?.resetAndDestroy())
const close: Close = (res) => res.socket?.destroySoon()

interface Asked {
  readonly id: string
  readonly text: string
}

const modelOf = (path: string): string => (path.startsWith(MESSAGES) ? 'claude-test' : 'gpt-test')

async function ask(
  gateway: TestGateway,
  bot: Identity,
  path: string,
  type: string,
  body: string,
  then: Close = end,
): Promise<Asked> {
  gateway.upstream.answer = (res) => {
    res.writeHead(200, { 'content-type': type })
    res.write(body, () => then(res))
  }
  const request = { model: modelOf(path), stream: type === SSE }
  const { headers, text } = await gateway.call(bot, 'POST', path, { body: request })
  return { id: String(headers['x-request-id']), text }
}

/** The outcome rows of the calls so far, by request. */
async function outcomes(gateway: TestGateway): Promise<(id: string) => AuditRow | undefined> {
  const { ended } = await settledCalls(gateway)
  return (id) => ended.find(({ request_id: of }) => of === id)
}

const caller = async (t: Test) => {
  const gateway = await sharedGateway(t)
  return { gateway, bot: await gateway.enroll('bot', ['llm.chat']) }
}

const ERROR = { error: { message: 'no', type: 'server_error', code: 'boom' } }
const OVERLOADED = { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }
const completed = { id: 'r', object: 'response', status: 'completed', error: null, output: [], usage: null }

/** Path, type, answer, and the code that the row names. */
const FAILED: readonly (readonly [string, string, string, string, string | undefined])[] = [
  ['an error event first', CHAT, SSE, data(ERROR), 'boom'],
  ['an error event later', CHAT, SSE, HI + data(ERROR), 'boom'],
  ['an error event with a name', CHAT, SSE, `${HI}event: error\n${data(ERROR)}`, 'boom'],
  [
    'a named error whose data has another form',
    CHAT,
    SSE,
    `${HI}event: error\n${data({ code: 'boom' })}`,
    'boom',
  ],
  ['a named error whose data is no JSON', CHAT, SSE, `${HI}event: error\ndata: oops\n\n`, undefined],
  ['an error event and then the end', CHAT, SSE, HI + data(ERROR) + DONE, 'boom'],
  ['an error after a usage of nothing yet', CHAT, SSE, data({ choices: [], usage: null, ...ERROR }), 'boom'],
  ['an error that is a text', CHAT, SSE, data({ error: 'no' }), 'no'],
  ['an error that is a sentence', CHAT, SSE, data({ error: 'it did not work' }), undefined],
  ['a status as code', CHAT, SSE, HI + data({ error: { code: 429, message: 'slow' } }), '429'],
  ['an escaped name', CHAT, SSE, `${HI}data: {"\\u0065rror":{"code":"boom"}}\n\n`, 'boom'],
  ['an error over two lines', CHAT, SSE, `${HI}data: {"error":\ndata: {"code":"boom"}}\n\n`, 'boom'],
  ['an error without a blank line after it', CHAT, SSE, HI + data(ERROR).trimEnd(), 'boom'],
  ['an error in lines of CR LF', CHAT, SSE, (HI + data(ERROR)).replaceAll('\n', '\r\n'), 'boom'],
  ['an error in lines of CR', CHAT, SSE, (HI + data(ERROR)).replaceAll('\n', '\r'), 'boom'],
  [
    'an error that is long',
    CHAT,
    SSE,
    HI + data({ error: { code: 'boom' }, echo: 'x'.repeat(200_000) }),
    'boom',
  ],
  [
    'a choice that failed',
    CHAT,
    SSE,
    HI + data({ choices: [{ error: { code: 502 }, finish_reason: 'error' }] }),
    '502',
  ],
  ['a choice that ends with an error', CHAT, SSE, HI + text('', 'error') + DONE, undefined],
  ['a document as a stream', CHAT, SSE, JSON.stringify(ERROR), 'boom'],
  ['a stream of failing words', CHAT, SSE, data({ message: 'Too many', code: 'Throttling' }), 'Throttling'],
  ['a JSON error', CHAT, JSON_TYPE, JSON.stringify(ERROR), 'boom'],
  ['a JSON error with a type alone', CHAT, JSON_TYPE, '{"error":{"message":"no","type":"quota"}}', 'quota'],
  ['a JSON error next to choices', CHAT, JSON_TYPE, JSON.stringify({ choices: [], ...ERROR }), 'boom'],
  ['a JSON error after a mark', CHAT, JSON_TYPE, `\uFEFF${JSON.stringify(ERROR)}`, 'boom'],
  ['a JSON error in a list', CHAT, JSON_TYPE, JSON.stringify([ERROR]), 'boom'],
  ['an object that is an error', CHAT, JSON_TYPE, '{"object":"error","message":"no","code":40301}', '40301'],
  ['words of FastAPI', CHAT, JSON_TYPE, '{"detail":"Not ready"}', undefined],
  ['words of a gateway', CHAT, JSON_TYPE, '{"message":"no","code":"InvalidApiKey"}', 'InvalidApiKey'],
  ['no success', CHAT, JSON_TYPE, '{"code":500,"msg":"404","success":false}', '500'],
  ['a number of MiniMax', CHAT, JSON_TYPE, '{"choices":null,"base_resp":{"status_code":1004}}', '1004'],
  ['a number of Baidu', CHAT, JSON_TYPE, '{"error_code":110,"error_msg":"no"}', '110'],
  ['a JSON choice that failed', CHAT, JSON_TYPE, '{"choices":[{"index":0,"error":{"code":502}}]}', '502'],
  ['no JSON', CHAT, JSON_TYPE, '{"choices": oops}', undefined],
  ['embeddings', '/v1/embeddings', JSON_TYPE, JSON.stringify(ERROR), 'boom'],
  ['completions', '/v1/completions', JSON_TYPE, JSON.stringify(ERROR), 'boom'],
  [
    'response.failed',
    RESPONSES,
    SSE,
    CREATED + ended('failed', { error: { code: 'server_error' } }),
    'server_error',
  ],
  ['response.failed without a code', RESPONSES, SSE, CREATED + ended('failed'), 'failed'],
  [
    'an error event of Responses',
    RESPONSES,
    SSE,
    CREATED + event('error', { code: 'rate_limit_exceeded' }),
    'rate_limit_exceeded',
  ],
  [
    'a failed response',
    RESPONSES,
    JSON_TYPE,
    JSON.stringify({ ...completed, status: 'failed', error: { code: 'server_error' } }),
    'server_error',
  ],
  [
    'a cancelled response',
    RESPONSES,
    JSON_TYPE,
    JSON.stringify({ ...completed, status: 'cancelled' }),
    'cancelled',
  ],
  [
    'a long failed response',
    RESPONSES,
    JSON_TYPE,
    JSON.stringify({ ...completed, instructions: 'x'.repeat(200_000), status: 'failed' }),
    'failed',
  ],
  ['an Anthropic error first', MESSAGES, SSE, event('error', OVERLOADED), 'overloaded_error'],
  ['an Anthropic error later', MESSAGES, SSE, START + DELTA + event('error', OVERLOADED), 'overloaded_error'],
  ['an Anthropic error without a name', MESSAGES, SSE, START + data(OVERLOADED), 'overloaded_error'],
  ['a JSON error of Anthropic', MESSAGES, JSON_TYPE, JSON.stringify(OVERLOADED), 'overloaded_error'],
  [
    'an error of count_tokens',
    '/v1/messages/count_tokens',
    JSON_TYPE,
    JSON.stringify(OVERLOADED),
    'overloaded_error',
  ],
]

/** Answers that look like failures, and are none. */
const SOUND: readonly (readonly [string, string, string, string])[] = [
  ['a stream', CHAT, SSE, HI + STOP + DONE],
  ['a stream without [DONE]', CHAT, SSE, HI + STOP],
  ['a stream whose last event states usage', CHAT, SSE, HI + COUNTED],
  ['no error in each event', CHAT, SSE, data({ error: null, choices: [{ finish_reason: 'stop' }] }) + DONE],
  ['an empty error', CHAT, SSE, data({ error: {}, choices: [] }) + data({ error: '', choices: [] }) + DONE],
  ['a text about errors', CHAT, SSE, text('{"error":{"code":"boom"}} [DONE] event: error') + STOP + DONE],
  [
    'a tool that is called error',
    CHAT,
    SSE,
    data({
      choices: [{ delta: { tool_calls: [{ function: { name: 'error', arguments: '{"error":1}' } }] } }],
    }) +
      STOP +
      DONE,
  ],
  ['a stop by the filter', CHAT, SSE, HI + text('', 'content_filter') + DONE],
  ['a JSON answer', CHAT, JSON_TYPE, '{"choices":[{"message":{"content":"hi"}}],"error":null}'],
  ['a JSON answer about errors', CHAT, JSON_TYPE, '{"choices":[{"message":{"error":{"code":"boom"}}}]}'],
  ['a JSON answer with words', CHAT, JSON_TYPE, '{"choices":[],"message":"ok","code":"Success"}'],
  ['a number of MiniMax that says nothing', CHAT, JSON_TYPE, '{"choices":[],"base_resp":{"status_code":0}}'],
  ['a completed response', RESPONSES, SSE, CREATED + ended('completed')],
  [
    'an incomplete response',
    RESPONSES,
    SSE,
    CREATED + ended('incomplete', { incomplete_details: { reason: 'max_output_tokens' } }),
  ],
  ['a JSON response', RESPONSES, JSON_TYPE, JSON.stringify(completed)],
  [
    'an incomplete JSON response',
    RESPONSES,
    JSON_TYPE,
    JSON.stringify({ ...completed, status: 'incomplete' }),
  ],
  ['a response in the background', RESPONSES, JSON_TYPE, JSON.stringify({ ...completed, status: 'queued' })],
  ['a message', MESSAGES, SSE, START + DELTA + MESSAGE_END + MESSAGE_STOP],
  ['a refusal of the model', MESSAGES, JSON_TYPE, '{"type":"message","content":[],"stop_reason":"refusal"}'],
  ['a count', '/v1/messages/count_tokens', JSON_TYPE, '{"input_tokens":7}'],
  ['embeddings', '/v1/embeddings', JSON_TYPE, '{"object":"list","data":[{"embedding":[1]}]}'],
]

t.test('a 200 that carries the provider’s error is recorded as one, its bytes unchanged', async (t) => {
  const { gateway, bot } = await caller(t)
  const asked: (readonly [string, string, string | undefined])[] = []
  for (const [what, path, type, body, code] of FAILED) {
    const { id, text: got } = await ask(gateway, bot, path, type, body)
    t.equal(got, body, what)
    asked.push([what, id, code])
  }
  const outcome = await outcomes(gateway)
  const detail = { http_status: 200, ending: 'complete', reason: 'provider_failed' }
  for (const [what, id, code] of asked) {
    t.match(outcome(id), { status: 'error', detail }, what)
    t.equal(outcome(id)?.detail.error_code, code, `${what}: its code`)
  }
})

t.test('an answer that only looks like a failure is a success', async (t) => {
  const { gateway, bot } = await caller(t)
  const asked: (readonly [string, string])[] = []
  for (const [what, path, type, body] of SOUND) {
    const { id, text: got } = await ask(gateway, bot, path, type, body)
    t.equal(got, body, what)
    asked.push([what, id])
  }
  const outcome = await outcomes(gateway)
  for (const [what, id] of asked) {
    t.match(outcome(id), { status: 'success', detail: { ending: 'complete' } }, what)
    t.notMatch(outcome(id)?.detail, { reason: String }, what)
    t.notMatch(outcome(id)?.detail, { error_code: String }, what)
  }
})

t.test('no text of a provider, and no key, gets into a row as a code', async (t) => {
  const { gateway, bot } = await caller(t)
  for (const code of ['two words', 'x'.repeat(65), 'é', '', '\\u0073k-upstream-openai'])
    await ask(gateway, bot, CHAT, JSON_TYPE, `{"error":{"code":"${code}","message":"no"}}`)
  const { ended } = await settledCalls(gateway)
  t.equal(ended.length, 5)
  for (const { status, detail } of ended) {
    t.equal(status, 'error')
    t.notOk('error_code' in detail)
    t.notMatch(JSON.stringify(detail), 'sk-upstream')
  }
})

/** Whole by their last event, and so however the provider closes. */
const WHOLE: readonly (readonly [string, string, string, string, string])[] = [
  ['[DONE]', CHAT, SSE, HI + STOP + DONE, 'success'],
  ['[DONE] without a blank line', CHAT, SSE, HI + STOP + DONE.trimEnd(), 'success'],
  ['message_stop', MESSAGES, SSE, START + MESSAGE_END + MESSAGE_STOP, 'success'],
  ['response.completed', RESPONSES, SSE, CREATED + ended('completed'), 'success'],
  ['response.incomplete', RESPONSES, SSE, CREATED + ended('incomplete'), 'success'],
  ['response.failed', RESPONSES, SSE, CREATED + ended('failed'), 'error'],
  ['an error', CHAT, SSE, HI + data(ERROR), 'error'],
  ['a closed document', CHAT, JSON_TYPE, '{"choices":[]}', 'success'],
  ['a long closed document', CHAT, JSON_TYPE, `{"choices":[],"x":"${'x'.repeat(200_000)}"}`, 'success'],
]

t.test('an answer whose last event was written is whole, however the provider closes', async (t) => {
  const { gateway, bot } = await caller(t)
  const asked: (readonly [string, string, string])[] = []
  // What has not left the provider is lost with a reset.
  for (const [what, path, type, body, status] of WHOLE)
    for (const then of body.length < 10_000 ? [reset, close] : [close]) {
      const { id, text: got } = await ask(gateway, bot, path, type, body, then)
      t.equal(got, body, `${what}: nothing is added`)
      asked.push([what, id, status])
    }
  const outcome = await outcomes(gateway)
  for (const [what, id, status] of asked)
    t.match(outcome(id), { status, detail: { ending: 'complete' } }, what)
})

t.test('an answer whose last event was written is whole if its client then hangs up', async (t) => {
  const { gateway, bot } = await caller(t)
  const cases = [
    [CHAT, HI + STOP + DONE, 'success', '[DONE]'],
    [CHAT, HI + data(ERROR), 'error', 'boom'],
    [MESSAGES, START + MESSAGE_END + MESSAGE_STOP, 'success', 'message_stop"}'],
    [RESPONSES, CREATED + ended('completed'), 'success', 'completed","error'],
    [CHAT, HI + STOP, 'truncated', '"stop"'],
    [MESSAGES, START + DELTA, 'truncated', 'text_delta'],
  ] as const
  for (const [path, body, status, last] of cases) {
    gateway.upstream.answer = (res) => {
      res.writeHead(200, { 'content-type': SSE })
      res.write(body)
    }
    const connection = await rawConnect(t, gateway, bot)
    connection.send(requestBytes('POST', path, [], JSON.stringify({ model: modelOf(path), stream: true })))
    const received = await connection.until(last)
    connection.socket.destroy()
    const outcome = await outcomes(gateway)
    const ending = status === 'truncated' ? 'client_gone' : 'complete'
    t.match(outcome(/x-request-id: (\S+)/.exec(received)?.[1] ?? ''), { status, detail: { ending } }, last)
  }
})

t.test('an answer that ends soundly before its last event is not whole', async (t) => {
  const { gateway, bot } = await caller(t)
  const asked: (readonly [string, string])[] = []
  for (const [path, type, body] of [
    [CHAT, SSE, HI],
    [CHAT, SSE, ': nothing\n\n'],
    [CHAT, SSE, text('[DONE]')],
    [MESSAGES, SSE, START + DELTA],
    [RESPONSES, SSE, CREATED],
    [RESPONSES, SSE, CREATED + ended('completed', { x: 'x'.repeat(200_000) }).slice(0, -9)],
    [CHAT, JSON_TYPE, '{"choices":['],
    [CHAT, JSON_TYPE, `{"choices":["${'x'.repeat(200_000)}`],
  ] as const) {
    const { id, text: got } = await ask(gateway, bot, path, type, body)
    t.equal(got, body, 'nothing is added')
    asked.push([body.slice(-60), id])
  }
  const outcome = await outcomes(gateway)
  const detail = { ending: 'upstream_broken', tokens_unknown: 'cut_off' }
  for (const [what, id] of asked) t.match(outcome(id), { status: 'truncated', detail }, what)
})

const USAGE = { prompt_tokens: 7, completion_tokens: 3 }
const TOKENS = { input: 7, output: 3 }
const vectors = Array.from({ length: 100 }, (_, index) => ({
  index,
  object: 'embedding',
  embedding: Array.from({ length: 3072 }, (_item, at) => Math.sin(at + index)),
}))
const IMAGE = 'iVBORw0KGgo='.repeat(250_000)

/** Path, type, answer, tokens, and the reason why they are not known. */
const COUNTS: readonly (readonly [string, string, string, string, object | undefined, string | undefined])[] =
  [
    [
      'an image in response.completed',
      RESPONSES,
      SSE,
      ended('completed', {
        output: [{ type: 'image_generation_call', result: IMAGE }],
        usage: { input_tokens: 7, output_tokens: 3 },
      }),
      TOKENS,
      undefined,
    ],
    [
      'an image in a JSON response',
      RESPONSES,
      JSON_TYPE,
      JSON.stringify({
        ...completed,
        output: [{ result: IMAGE }],
        usage: { input_tokens: 7, output_tokens: 3 },
      }),
      TOKENS,
      undefined,
    ],
    [
      '100 embeddings',
      '/v1/embeddings',
      JSON_TYPE,
      JSON.stringify({ object: 'list', data: vectors, usage: { prompt_tokens: 7, total_tokens: 7 } }),
      { input: 7 },
      undefined,
    ],
    [
      'usage before 100 embeddings',
      '/v1/embeddings',
      JSON_TYPE,
      JSON.stringify({ usage: { prompt_tokens: 7 }, data: vectors }, null, 1),
      { input: 7 },
      undefined,
    ],
    [
      'usage in a choice',
      CHAT,
      SSE,
      HI + data({ choices: [{ index: 0, delta: {}, finish_reason: 'stop', usage: USAGE }] }) + DONE,
      TOKENS,
      undefined,
    ],
    [
      'usage in a choice of a long answer',
      CHAT,
      JSON_TYPE,
      JSON.stringify({ choices: [{ message: { content: 'x'.repeat(200_000) }, usage: USAGE }] }),
      TOKENS,
      undefined,
    ],
    [
      'usage in a choice, and another on top',
      CHAT,
      JSON_TYPE,
      JSON.stringify({ usage: USAGE, choices: [{ usage: { prompt_tokens: 1 } }] }),
      TOKENS,
      undefined,
    ],
    [
      'usage of Groq',
      CHAT,
      SSE,
      HI + data({ choices: [{ finish_reason: 'stop' }], x_groq: { usage: USAGE } }) + DONE,
      TOKENS,
      undefined,
    ],
    [
      'usage over several lines',
      CHAT,
      SSE,
      `${HI}data: {"choices":[],"usage":\ndata: {"prompt_tokens":7,\ndata: "completion_tokens":3}}\n\n${DONE}`,
      TOKENS,
      undefined,
    ],
    [
      'usage after fields and comments',
      CHAT,
      SSE,
      `: hi\nid: 1\nretry: 5\nevent: x\n${COUNTED.replace('data: ', 'data:')}: bye\n${DONE}`,
      TOKENS,
      undefined,
    ],
    ['usage in the first event after a mark', CHAT, SSE, `\uFEFF${COUNTED}${DONE}`, TOKENS, undefined],
    ['usage in lines of CR', CHAT, SSE, (HI + COUNTED + DONE).replaceAll('\n', '\r'), TOKENS, undefined],
    [
      'usage in lines of every kind',
      CHAT,
      SSE,
      HI.replaceAll('\n', '\r') + COUNTED.replace('\n\n', '\n\r\n') + DONE.replace('\n\n', '\r\n\n'),
      TOKENS,
      undefined,
    ],
    ['usage without a blank line after it', CHAT, SSE, HI + COUNTED.trimEnd(), TOKENS, undefined],
    ['usage after the end', CHAT, SSE, HI + STOP + DONE + COUNTED, TOKENS, undefined],
    [
      'an escaped name',
      CHAT,
      JSON_TYPE,
      '{"choices":[],"us\\u0061ge":{"prompt_tokens":7,"completion_tokens":3}}',
      TOKENS,
      undefined,
    ],
    [
      'an escaped name in a long answer',
      CHAT,
      JSON_TYPE,
      `{"choices":[],"x":"${'x'.repeat(200_000)}","us\\u0061ge":{"prompt_tokens":7,"completion_tokens":3}}`,
      TOKENS,
      undefined,
    ],
    [
      'an escaped name in a stream',
      CHAT,
      SSE,
      `${HI}data: {"\\u0075sage":{"prompt_tokens":7,"completion_tokens":3}}\n\n${DONE}`,
      TOKENS,
      undefined,
    ],
    [
      'numbers in another spelling',
      CHAT,
      JSON_TYPE,
      '{"choices":[],"usage":{"prompt_tokens":7.0,"completion_tokens":0.3e1}}',
      TOKENS,
      undefined,
    ],
    [
      'a name that stands twice',
      CHAT,
      JSON_TYPE,
      '{"usage":{"prompt_tokens":1},"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}',
      TOKENS,
      undefined,
    ],
    ['a stream as JSON', CHAT, JSON_TYPE, HI + COUNTED + DONE, TOKENS, undefined],
    [
      'counts that grow',
      MESSAGES,
      SSE,
      START +
        event('message_delta', {
          delta: { stop_reason: 'end_turn' },
          usage: {
            input_tokens: 5,
            output_tokens: 9,
            cache_read_input_tokens: 2,
            cache_creation_input_tokens: null,
          },
        }) +
        MESSAGE_STOP,
      { input: 7, output: 9, cache_read: 2 },
      undefined,
    ],
    ['none', CHAT, SSE, HI + STOP + DONE, undefined, 'not_stated'],
    [
      'nothing yet',
      CHAT,
      SSE,
      data({ choices: [{ finish_reason: 'stop' }], usage: null }) + DONE,
      undefined,
      'not_stated',
    ],
    [
      'usage elsewhere',
      CHAT,
      JSON_TYPE,
      JSON.stringify({
        choices: [{ message: { content: '"usage":{"prompt_tokens":9}', usage: USAGE } }],
        other: { usage: USAGE },
      }),
      undefined,
      'not_stated',
    ],
    [
      'usage elsewhere in a long answer',
      CHAT,
      JSON_TYPE,
      JSON.stringify({
        choices: [{ message: { content: 'x'.repeat(200_000), usage: USAGE } }],
        other: [{ usage: USAGE }],
      }),
      undefined,
      'not_stated',
    ],
    [
      'texts for numbers',
      CHAT,
      JSON_TYPE,
      '{"choices":[],"usage":{"prompt_tokens":"7","completion_tokens":3}}',
      { output: 3 },
      'not_numbers',
    ],
    ['a fraction', CHAT, JSON_TYPE, '{"choices":[],"usage":{"prompt_tokens":7.5}}', undefined, 'not_numbers'],
    [
      'less than nothing',
      CHAT,
      JSON_TYPE,
      '{"choices":[],"usage":{"prompt_tokens":-1}}',
      undefined,
      'not_numbers',
    ],
    [
      'more than can be counted',
      CHAT,
      JSON_TYPE,
      '{"choices":[],"usage":{"prompt_tokens":1e300}}',
      undefined,
      'not_numbers',
    ],
    ['usage that is a number', CHAT, JSON_TYPE, '{"choices":[],"usage":7}', undefined, 'not_numbers'],
    [
      'names of somebody else',
      CHAT,
      JSON_TYPE,
      '{"choices":[],"usage":{"total":7}}',
      undefined,
      'other_names',
    ],
    [
      'usage of 70 KB',
      CHAT,
      JSON_TYPE,
      JSON.stringify({ choices: [], usage: { x: 'x'.repeat(70_000), ...USAGE } }),
      undefined,
      'too_long',
    ],
    ['a failure', CHAT, JSON_TYPE, JSON.stringify(ERROR), undefined, 'failed'],
    ['a failure after counts', CHAT, SSE, COUNTED + data(ERROR), TOKENS, undefined],
    ['no JSON', CHAT, JSON_TYPE, '{"choices": oops}', undefined, 'unreadable'],
    [
      'pictures',
      '/v1/images/generations',
      JSON_TYPE,
      JSON.stringify({
        created: 1,
        data: [{ b64_json: 'x'.repeat(200_000) }],
        usage: {
          input_tokens: 7,
          output_tokens: 3,
          total_tokens: 10,
          input_tokens_details: { image_tokens: 5, text_tokens: 2 },
        },
      }),
      { ...TOKENS, input_image: 5 },
      undefined,
    ],
    [
      'pictures that are billed one by one',
      '/v1/images/generations',
      JSON_TYPE,
      '{"created":1,"data":[{"url":"https://a.example/1"}]}',
      undefined,
      'not_stated',
    ],
    [
      'pictures that come in pieces',
      '/v1/images/generations',
      SSE,
      event('image_generation.partial_image', { b64_json: 'x'.repeat(200_000) }) +
        event('image_generation.completed', {
          b64_json: 'x'.repeat(200_000),
          usage: { input_tokens: 7, output_tokens: 3, total_tokens: 10 },
        }),
      TOKENS,
      undefined,
    ],
    ['a moderation, which costs none', '/v1/moderations', JSON_TYPE, '{"results":[]}', undefined, undefined],
    [
      'a compaction',
      '/v1/responses/compact',
      JSON_TYPE,
      '{"object":"response.compaction","output":[],"usage":{"input_tokens":7,"output_tokens":3,"total_tokens":10}}',
      TOKENS,
      undefined,
    ],
    [
      'a count of tokens of a response, which costs none',
      '/v1/responses/input_tokens',
      JSON_TYPE,
      '{"object":"response.input_tokens","input_tokens":7}',
      undefined,
      undefined,
    ],
    [
      'a count of tokens, which costs none',
      '/v1/messages/count_tokens',
      JSON_TYPE,
      '{"input_tokens":7}',
      undefined,
      undefined,
    ],
  ]

t.test(
  'whatever the framing and the length of an answer, its tokens are counted, or unknown and why',
  async (t) => {
    const { gateway, bot } = await caller(t)
    const asked: (readonly [string, string, object | undefined, string | undefined])[] = []
    for (const [what, path, type, body, tokens, unknown] of COUNTS) {
      const { id, text: got } = await ask(gateway, bot, path, type, body)
      t.ok(got === body, `${what}: its bytes`)
      asked.push([what, id, tokens, unknown])
    }
    const cut = await ask(gateway, bot, MESSAGES, SSE, START + DELTA)
    asked.push(['counts before it broke off', cut.id, { input: 5, output: 1 }, 'cut_off'])
    const outcome = await outcomes(gateway)
    for (const [what, id, tokens, unknown] of asked) {
      t.same(outcome(id)?.detail.tokens, tokens, what)
      t.equal(outcome(id)?.detail.tokens_unknown, unknown, `${what}: why`)
    }
  },
)

t.test('metrics tell how LLM calls ended, and why tokens are not known', async (t) => {
  const { gateway, bot } = await caller(t)
  const figures = async () => {
    const { text: page } = await gateway.admin('GET', '/metrics')
    const figure = (line: string): number =>
      Number(
        page
          .split('\n')
          .find((one) => one.startsWith(`${line} `))
          ?.split(' ')[1] ?? 0,
      )
    return {
      error: figure('sallyport_llm_calls_total{provider="openai",result="error"}'),
      success: figure('sallyport_llm_calls_total{provider="openai",result="success"}'),
      truncated: figure('sallyport_llm_calls_total{provider="openai",result="truncated"}'),
      failed: figure('sallyport_tokens_unknown_total{provider="openai",reason="failed"}'),
      cutOff: figure('sallyport_tokens_unknown_total{provider="openai",reason="cut_off"}'),
    }
  }
  const before = await figures()
  await ask(gateway, bot, CHAT, SSE, data(ERROR))
  await ask(gateway, bot, CHAT, SSE, COUNTED + DONE)
  await ask(gateway, bot, CHAT, SSE, HI)
  const after = await figures()
  t.same(
    Object.entries(after).map(([name, count]) => [name, count - Reflect.get(before, name)]),
    Object.keys(after).map((name) => [name, 1]),
  )
})
