import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { MemoryBudget } from '../../../../proxy/http/open-calls.ts'
import { answerTap } from '../../../../proxy/llm/dialects/answer-tap.ts'
import { anthropic } from '../../../../proxy/llm/dialects/anthropic.ts'
import type { AnswerNames, Dialect } from '../../../../proxy/llm/dialects/dialect.ts'
import { openai } from '../../../../proxy/llm/dialects/openai.ts'
import { LLM_ENDPOINTS } from '../../../../proxy/llm/dialects/registry.ts'
import type { ProviderUsage } from '../../../../proxy/llm/dialects/stated-usage.ts'
import { holdOf } from '../../../support/loop-hold.ts'

const SSE = 'text/event-stream; charset=utf-8'

type Read = (type: string, chunks: readonly (string | Buffer)[], encoding?: string) => ProviderUsage

const reading =
  (dialect: Dialect): Read =>
  (type, chunks, encoding) => {
    const tap = answerTap(dialect, type, encoding)
    for (const chunk of chunks) tap.observe(Buffer.from(chunk))
    return tap.usage()
  }

const readOpenai = reading(openai)
const readAnthropic = reading(anthropic)

const event = (value: unknown, name?: string): string =>
  `${name ? `event: ${name}\n` : ''}data: ${JSON.stringify(value)}\n\n`

const CHAT =
  event({ model: 'gpt-4o-2024', choices: [{ delta: { content: 'the "usage" of é\u2028' } }], usage: null }) +
  event({
    model: 'gpt-4o-2024',
    choices: [],
    usage: {
      prompt_tokens: 10,
      completion_tokens: 5,
      total_tokens: 15,
      prompt_tokens_details: { cached_tokens: 4 },
      completion_tokens_details: { reasoning_tokens: 3 },
    },
    service_tier: 'priority',
  }) +
  'data: [DONE]\n\n'
const CHAT_USAGE = {
  tokens: { input: 10, output: 5, cache_read: 4, reasoning: 3 },
  service_tier: 'priority',
  upstream_model: 'gpt-4o-2024',
}

const MESSAGES =
  event(
    {
      type: 'message_start',
      message: {
        model: 'claude-haiku-4-5',
        usage: {
          input_tokens: 3,
          cache_creation_input_tokens: 20,
          cache_read_input_tokens: 100,
          cache_creation: { ephemeral_5m_input_tokens: 5, ephemeral_1h_input_tokens: 15 },
          output_tokens: 1,
          service_tier: 'standard',
        },
      },
    },
    'message_start',
  ) +
  event({ type: 'content_block_delta', delta: { text: 'hi' } }, 'content_block_delta') +
  event(
    {
      type: 'message_delta',
      delta: {},
      usage: { output_tokens: 42, output_tokens_details: { thinking_tokens: 30 } },
    },
    'message_delta',
  ) +
  event({ type: 'message_stop' }, 'message_stop')
const MESSAGES_USAGE = {
  tokens: {
    input: 123,
    output: 42,
    cache_read: 100,
    cache_write: 20,
    cache_write_5m: 5,
    cache_write_1h: 15,
    reasoning: 30,
  },
  service_tier: 'standard',
  upstream_model: 'claude-haiku-4-5',
}

const RESPONSES =
  event({ type: 'response.created', response: { model: 'gpt-5', usage: null } }, 'response.created') +
  event(
    {
      type: 'response.completed',
      response: {
        model: 'gpt-5',
        usage: {
          input_tokens: 7,
          input_tokens_details: { cached_tokens: 2 },
          output_tokens: 9,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: 16,
        },
        service_tier: 'default',
      },
    },
    'response.completed',
  )
const RESPONSES_USAGE = {
  tokens: { input: 7, output: 9, cache_read: 2, reasoning: 0 },
  service_tier: 'default',
  upstream_model: 'gpt-5',
}

for (const [name, read, stream, usage] of [
  ['OpenAI chat', readOpenai, CHAT, CHAT_USAGE],
  ['Anthropic messages', readAnthropic, MESSAGES, MESSAGES_USAGE],
  ['OpenAI responses', readOpenai, RESPONSES, RESPONSES_USAGE],
] as const) {
  await t.test(
    `§3 the usage of an ${name} stream is read, wherever the stream is cut into chunks`,
    async (t) => {
      t.strictSame(read(SSE, [stream]), usage)
      t.strictSame(read(SSE, [stream.replaceAll('\n', '\r\n')]), usage)
      const bytes = Buffer.from(stream)
      t.strictSame(
        read(
          SSE,
          Array.from(bytes, (_, i) => bytes.subarray(i, i + 1)),
        ),
        usage,
      )
      fc.assert(
        fc.property(fc.array(fc.nat(bytes.length)), (cuts) => {
          const edges = [0, ...cuts.toSorted((a, b) => a - b), bytes.length]
          const chunks = edges.slice(1).map((end, i) => bytes.subarray(edges[i], end))
          return JSON.stringify(read(SSE, chunks)) === JSON.stringify(usage)
        }),
      )
    },
  )
}

await t.test('§3 the usage of a JSON answer is read in both dialects', async (t) => {
  const chat = JSON.stringify({ model: 'gpt-4o', usage: { prompt_tokens: 1, completion_tokens: 2 } })
  t.strictSame(readOpenai('application/json', [chat.slice(0, 9), chat.slice(9)]), {
    tokens: { input: 1, output: 2 },
    upstream_model: 'gpt-4o',
  })
  const message = { model: 'c', usage: { input_tokens: 1, cache_read_input_tokens: 8, output_tokens: 2 } }
  t.match(readAnthropic('application/json', [JSON.stringify(message)]), {
    tokens: { input: 9, cache_read: 8 },
  })
  t.match(readOpenai('application/json', [JSON.stringify({ usage: { prompt_tokens: 6 } })]), {
    tokens: { input: 6 },
  })
})

await t.test('§3 what is not a whole number is unknown, and a model name that is too long too', async (t) => {
  const odd = { prompt_tokens: 1.5, completion_tokens: -1, prompt_tokens_details: { cached_tokens: '4' } }
  t.strictSame(
    readOpenai('application/json', [JSON.stringify({ model: 'm'.repeat(257), service_tier: 5, usage: odd })]),
    {},
  )
})

await t.test('§3 what the answer merely talks about is not its usage', async (t) => {
  const talk = {
    choices: [{ message: { content: '"usage":{"prompt_tokens":9}' } }],
    other: { usage: { prompt_tokens: 9 } },
  }
  t.strictSame(readOpenai('application/json', [JSON.stringify(talk)]), {})
  t.strictSame(readOpenai(SSE, [event(talk), `: {"usage":{"prompt_tokens":9}}\n\n`]), {})
})

await t.test('threat 38 nothing an upstream sends makes the tap throw, or keep what is long', async (t) => {
  t.strictSame(readOpenai('application/json', ['{"usage":']), {})
  t.strictSame(readOpenai('application/json', ['null']), {})
  t.strictSame(readOpenai(SSE, ['data: {"usage"\n\ndata: {"usage":3}\ndata: "usage"\n']), {})
  const chunk = Buffer.alloc(1024 * 1024, 0x20)
  t.strictSame(readOpenai('application/json', [...Array(5).fill(chunk), '{"usage":{"prompt_tokens":1}}']), {
    tokens: { input: 1 },
  })
  t.strictSame(readOpenai('application/json', ['{"usage":', ...Array(5).fill(chunk), '{}}']), {})
  // A line without end is nobody's, the next one is read.
  t.match(readOpenai(SSE, [...Array(5).fill(chunk), '\n', event({ usage: { prompt_tokens: 1 } })]), {
    tokens: { input: 1 },
  })
})

await t.test('§3 a compressed answer, or one of another type, is not read', async (t) => {
  t.strictSame(readOpenai(SSE, [CHAT], 'gzip'), {})
  t.strictSame(readOpenai('text/html', [CHAT]), {})
  t.strictSame(readOpenai(SSE, [CHAT], 'identity'), CHAT_USAGE)
})

await t.test(
  '§3 a vendor’s own names count alone: what OpenAI counts within is not added again',
  async (t) => {
    const usage = { prompt_tokens: 10, completion_tokens: 2, cache_read_input_tokens: 8 }
    t.strictSame(readOpenai('application/json', [JSON.stringify({ usage })]), {
      tokens: { input: 10, output: 2 },
    })
  },
)

const MIB = 1024 * 1024

await t.test('A4: what a tap keeps is counted, and no more is kept than may be', (t) => {
  const answer = Buffer.from(JSON.stringify({ padding: 'x'.repeat(1.5 * MIB), usage: { prompt_tokens: 7 } }))
  const usage = { tokens: { input: 7 } }
  for (const share of [3, 1, 0.001]) {
    const budget = new MemoryBudget(
      { process: 100 * MIB, perPrincipal: share * MIB, perAnonymous: MIB },
      () => {},
    )
    const held = budget.open()
    held.setOwner({ principal: { id: 'alice', capabilities: ['x'] } })
    const tap = answerTap(openai, 'application/json', 'identity', held)
    for (let at = 0; at < answer.length; at += 65_536) tap.observe(answer.subarray(at, at + 65_536))
    t.strictSame(tap.usage(), usage)
    t.ok(budget.held <= 65_536, `${budget.held} bytes are held`)
    held.end()
    t.equal(budget.held, 0)
  }
  t.end()
})

const [chat, responses, embeddings, messages] = [
  '/v1/chat/completions',
  '/v1/responses',
  '/v1/embeddings',
  '/v1/messages',
].map((path) => LLM_ENDPOINTS.find((endpoint) => endpoint.path === path)?.names ?? openai)
const USED = { input_tokens: 7, output_tokens: 9 }
const item = (type: string, more: object = {}) => ({ type, ...more })
const done = (one: object): string => event({ type: 'response.output_item.done', item: one })
const search = item('web_search_call', { action: { type: 'search', query: '"usage":null' } })
const opened = item('web_search_call', { action: { type: 'open_page', url: 'https://a.example/' } })
const completed = (response: object): string =>
  event({ type: 'response.completed', response: { ...response, usage: USED } }, 'response.completed')
const iteration = (type: string, model?: string) => ({ type, model, input_tokens: 100, output_tokens: 10 })
const message = (usage: object): string =>
  event({ type: 'message_start', message: { usage: { ...USED, output_tokens: 1 } } }) +
  event({
    type: 'message_delta',
    delta: { stop_reason: 'end_turn' },
    usage: { output_tokens: 9, ...usage },
  }) +
  event({ type: 'message_stop' })

/** What is billed: the names of an endpoint, an answer as events or as JSON, and what a row says of it. */
const BILLED: readonly (readonly [string, AnswerNames | undefined, string | object, object, string?])[] = [
  [
    'what Chat Completions write to a cache, sound and pictures',
    chat,
    {
      choices: [],
      usage: {
        prompt_tokens: 90,
        completion_tokens: 9,
        total_tokens: 99,
        prompt_tokens_details: { cached_tokens: 4, cache_write_tokens: 50, audio_tokens: 3, image_tokens: 2 },
        completion_tokens_details: { reasoning_tokens: 3, audio_tokens: 1 },
      },
    },
    {
      tokens: {
        input: 90,
        output: 9,
        cache_read: 4,
        cache_write: 50,
        input_audio: 3,
        input_image: 2,
        reasoning: 3,
        output_audio: 1,
      },
    },
  ],
  [
    'what Responses write to a cache, by how long it stays',
    responses,
    event({
      type: 'response.completed',
      response: {
        usage: {
          ...USED,
          input_tokens_details: {
            cached_tokens: 0,
            cache_write_tokens: 6,
            cache_write_tokens_details: { ttl_30m_tokens: 4, ttl_12h_tokens: 2 },
          },
        },
      },
    }),
    {
      tokens: {
        input: 7,
        output: 9,
        cache_read: 0,
        cache_write: 6,
        cache_write_30m: 4,
        cache_write_12h: 2,
      },
    },
  ],
  [
    'what Messages write to a cache without a lifetime',
    messages,
    { content: [], usage: { ...USED, cache_creation_input_tokens: 5, cache_creation: null } },
    { tokens: { input: 12, output: 9, cache_write: 5 } },
  ],
  [
    'speed, place and searches of Messages, which grow',
    messages,
    event({
      type: 'message_start',
      message: {
        usage: {
          ...USED,
          speed: 'fast',
          inference_geo: 'us',
          service_tier: 'priority',
          server_tool_use: { web_search_requests: 0, web_fetch_requests: 0 },
        },
      },
    }) +
      event({
        type: 'message_delta',
        delta: { stop_reason: 'end_turn' },
        usage: { output_tokens: 9, server_tool_use: { web_search_requests: 2, web_fetch_requests: 1 } },
      }) +
      event({ type: 'message_stop' }),
    {
      tokens: { input: 7, output: 9 },
      speed: 'fast',
      geo: 'us',
      service_tier: 'priority',
      searches: 2,
      server_tools: { web_fetch: 1 },
    },
  ],
  [
    'a compaction, an advisor, and no step twice',
    messages,
    message({
      iterations: [
        iteration('compaction'),
        iteration('message', 'a'),
        iteration('advisor_message', 'b'),
        iteration('advisor_message', 'b'),
      ],
    }),
    {
      tokens: { input: 107, output: 19 },
      further: [{ kind: 'advisor', model: 'b', tokens: { input: 200, output: 20 } }],
    },
  ],
  [
    'a model before the one that served',
    messages,
    message({ iterations: [iteration('message', 'a'), iteration('fallback_message', 'b')] }),
    {
      tokens: { input: 7, output: 9 },
      further: [{ kind: 'fallen_back', model: 'a', tokens: { input: 100, output: 10 } }],
    },
  ],
  [
    'the searches among the items of a response',
    responses,
    {
      output: [
        search,
        opened,
        search,
        item('file_search_call'),
        item('code_interpreter_call'),
        item('message'),
      ],
      usage: USED,
    },
    { tokens: { input: 7, output: 9 }, searches: 2, server_tools: { file_search: 1, code_interpreter: 1 } },
  ],
  [
    'searches of a stream once, though an event and the end name them',
    responses,
    done(search) + done(opened) + done(search) + completed({ output: [search, opened, search] }),
    { tokens: { input: 7, output: 9 }, searches: 2 },
  ],
  [
    'the provider’s own count of searches before that of the items, and its tokens for images apart',
    responses,
    completed({
      output: [search, search, item('image_generation_call', { result: 'x'.repeat(200_000) })],
      tool_usage: {
        web_search: { num_requests: 1 },
        image_gen: {
          ...USED,
          total_tokens: 16,
          input_tokens_details: { image_tokens: 2, text_tokens: 5 },
          output_tokens_details: { image_tokens: 9, text_tokens: 0 },
        },
      },
    }),
    {
      tokens: { input: 7, output: 9 },
      searches: 1,
      server_tools: { image_generation: 1 },
      further: [
        { kind: 'image_generation', tokens: { input: 7, output: 9, input_image: 2, output_image: 9 } },
      ],
    },
  ],
  [
    'the searches of a response of a thousand items',
    responses,
    {
      output: Array.from({ length: 900 }, (_, i) =>
        i % 3 ? search : item('message', { content: 'x'.repeat(99) }),
      ),
      usage: USED,
    },
    { tokens: { input: 7, output: 9 }, searches: 600 },
  ],
  [
    'the counts behind more items than are kept',
    responses,
    { output: Array.from({ length: 12_000 }, () => item('message', { name: 'of a tool' })), usage: USED },
    { tokens: { input: 7, output: 9 } },
  ],
  [
    'searches of xAI, and reasoning that its output leaves out',
    chat,
    {
      choices: [],
      usage: {
        prompt_tokens: 10,
        completion_tokens: 2,
        total_tokens: 42,
        completion_tokens_details: { reasoning_tokens: 30 },
        num_sources_used: 5,
        server_side_tool_usage_details: { web_search_calls: 2, x_search_calls: 1, file_search_calls: 0 },
      },
    },
    {
      tokens: { input: 10, output: 2, reasoning: 30, total: 42 },
      searches: 2,
      server_tools: { sources: 5, x_search: 1 },
    },
  ],
  [
    'the cache of DeepSeek',
    chat,
    { choices: [], usage: { prompt_tokens: 10, completion_tokens: 2, prompt_cache_hit_tokens: 8 } },
    { tokens: { input: 10, output: 2, cache_read: 8 } },
  ],
  ['a total alone', embeddings, { data: [], usage: { total_tokens: 6 } }, { tokens: { input: 6 } }],
  [
    'an embedding, which writes nothing',
    embeddings,
    { data: [{ embedding: Array(40_000).fill(0.25) }], usage: { prompt_tokens: 6, total_tokens: 6 } },
    { tokens: { input: 6 } },
  ],
  [
    'a text that writes nothing',
    chat,
    { choices: [], usage: { prompt_tokens: 6, total_tokens: 6 } },
    { tokens: { input: 6 } },
  ],
  [
    'one count of two',
    chat,
    { choices: [], usage: { prompt_tokens: 6 } },
    { tokens: { input: 6 } },
    'partly',
  ],
  [
    'a total alone of a text',
    chat,
    { choices: [], usage: { total_tokens: 6 } },
    { tokens: { total: 6 } },
    'partly',
  ],
  [
    'searches that are no number',
    messages,
    { content: [], usage: { ...USED, server_tool_use: { web_search_requests: '2' } } },
    { tokens: { input: 7, output: 9 } },
    'not_numbers',
  ],
  ['searches until it broke off', responses, done(search) + done(search), { searches: 2 }, 'cut_off'],
  [
    'searches until it broke off, of Messages',
    messages,
    event({ type: 'message_start', message: { usage: USED } }) +
      event({ type: 'content_block_start', content_block: item('server_tool_use', { name: 'web_search' }) }),
    { tokens: { input: 7, output: 9 }, searches: 1 },
    'cut_off',
  ],
]

await t.test(
  'what a provider bills is read: in one piece, in many, long, and with ends of every kind',
  (t) => {
    const readingOf = (names: AnswerNames, type: string, text: string, size: number) => {
      const tap = answerTap(names, type)
      const bytes = Buffer.from(text)
      for (let at = 0; at < bytes.length; at += size) tap.observe(bytes.subarray(at, at + size))
      const { usage, tokensUnknown } = tap.read(tap.isWhole(true))
      return { ...usage, tokensUnknown }
    }
    for (const [what, names = openai, answer, stated, unknown = null] of BILLED) {
      const wanted = { ...stated, tokensUnknown: unknown }
      const texts =
        typeof answer === 'string'
          ? [answer, answer.replaceAll('\n', '\r\n'), `\uFEFF${answer.replaceAll('\n', '\r')}`]
          : [JSON.stringify(answer), JSON.stringify({ padding: 'x'.repeat(70_000), ...answer }, null, 1)]
      for (const text of texts)
        for (const size of [Infinity, 65_536, text.length > 9_999 ? 997 : 7])
          t.strictSame(
            readingOf(names, typeof answer === 'string' ? SSE : 'application/json', text, size),
            wanted,
            `${what}, by ${size}`,
          )
    }
    t.end()
  },
)

/** The counts in the SDKs' types that are no bill of their own: parts of text, and of a prediction. */
const UNBILLED = /^(?:text_tokens|cached_(?:text|image)_tokens|(?:accepted|rejected)_prediction_tokens)$/

await t.test('every count that the vendors’ SDKs know in an answer is known here', (t) => {
  for (const [sdk, file, name, dialect] of [
    ['openai', 'completions', 'CompletionUsage', openai],
    ['openai', 'responses/responses', 'ResponseUsage', openai],
    ['openai', 'responses/responses', 'ToolUsage', openai],
    ['openai', 'images', 'Usage', openai],
    ['openai', 'embeddings', 'Usage', openai],
    ['@anthropic-ai/sdk', 'messages/messages', 'Usage', anthropic],
    ['@anthropic-ai/sdk', 'messages/messages', 'MessageDeltaUsage', anthropic],
    ['@anthropic-ai/sdk', 'messages/messages', 'ServerToolUsage', anthropic],
    ['@anthropic-ai/sdk', 'messages/messages', 'CacheCreation', anthropic],
    ['@anthropic-ai/sdk', 'messages/messages', 'OutputTokensDetails', anthropic],
    ['@anthropic-ai/sdk', 'beta/messages/messages', 'BetaUsage', anthropic],
    ['@anthropic-ai/sdk', 'beta/messages/messages', 'BetaAdvisorMessageIterationUsage', anthropic],
  ] as const) {
    const text = readFileSync(
      join(import.meta.dirname, '../../../../node_modules', sdk, `resources/${file}.d.ts`),
      'utf8',
    )
    // A namespace of the same name holds what is nested in it.
    const blocks = [
      ...text.matchAll(
        new RegExp(`^( *)(?:export )?(?:declare )?(?:interface|namespace) ${name} \\{.*?^\\1\\}`, 'gms'),
      ),
    ]
    const counts = blocks.flatMap(([block]) =>
      [...block.matchAll(/^ *(\w+)\??: number\b/gm)].map(([, count = '']) => count),
    )
    t.ok(counts.length > 0, `${sdk} ${name}`)
    const known = JSON.stringify(dialect.usage)
    for (const count of counts)
      t.ok(UNBILLED.test(count) || new RegExp(`[".]${count}"`).test(known), `${sdk} ${name}.${count}`)
  }
  t.end()
})

/** The end of such a document from within its usage. */
const USAGE_TAIL = 30
const USAGE = { prompt_tokens: 6, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 4 } }
const COUNTED = {
  tokens: { input: 6, output: 7, cache_read: 4 },
  service_tier: 'flex',
  upstream_model: 'm"\\',
}

await t.test('§3 the usage of a long answer is read as that of a short one', async (t) => {
  const data = Array.from({ length: 8_000 }, (_, i) => ({ index: i, usage: USAGE, text: '"}],\\' }))
  const long = { object: 'list', data, model: 'm"\\', usage: USAGE, service_tier: 'flex' }
  t.strictSame(readOpenai('application/json', [JSON.stringify(long)]), COUNTED)
  t.strictSame(readOpenai('application/json', [JSON.stringify(long, null, 2)]), COUNTED)
  t.strictSame(readOpenai(SSE, [event({ response: long })]), COUNTED, 'and of one in an event')
  t.strictSame(
    readOpenai('application/json', [JSON.stringify({ data, other: long })]),
    {},
    'none but the outer one',
  )
  t.strictSame(readOpenai('application/json', [JSON.stringify([data, long])]), {})
  const cut = JSON.stringify(long).slice(0, -USAGE_TAIL)
  t.strictSame(readOpenai('application/json', [cut]), { upstream_model: 'm"\\' }, 'nor half of one')
})

await t.test('A3 a long answer does not hold up everybody while its usage is read', async (t) => {
  for (const [what, filling] of [
    ['empty arrays', '[],'],
    ['arrays in arrays', '['],
    ['empty strings', '"",'],
    ['numbers', '1,'],
    ['quotes', '"\\""'],
  ] as const) {
    const text = `{"usage":{"prompt_tokens":6},"a":[${filling.repeat(Math.floor((1.9 * MIB) / filling.length))}0]}`
    const { value, worstMs } = await holdOf(async () => readOpenai('application/json', [text]))
    t.equal(value.tokens?.input, 6, what)
    // Parsed whole it took up to 0.3 s.
    t.ok(worstMs < 60, `${what}: ${worstMs} ms`)
  }
  const members = Array.from({ length: 120_000 }, (_, i) => `"n${i}":${i}`).join()
  const { value, worstMs } = await holdOf(async () =>
    readOpenai(SSE, [`data: {${members},"usage":{"prompt_tokens":6}}\n`]),
  )
  t.equal(value.tokens?.input, 6)
  t.ok(worstMs < 60, `members: ${worstMs} ms`)
})

await t.test('row 23 of the statements in one piece the first ones and the last one are read', (t) => {
  const stated = (usage: object): string => `data: ${JSON.stringify({ usage })}\n\n`
  const first = stated({ prompt_tokens: 7 })
  const many = Array.from({ length: 1_500 }, (_, i) => stated({ completion_tokens: i })).join('')
  const { tokens } = readOpenai(SSE, [first + many])
  t.same(tokens, { input: 7, output: 1_499 })
  t.same(readOpenai(SSE, [first, many, stated({ completion_tokens: 3 })]).tokens, { input: 7, output: 3 })
  t.end()
})

/** Members that count, next to others of any name, and texts with quotes, escapes and brackets in them. */
const member = fc.constantFrom(
  'usage',
  'model',
  'choices',
  'response',
  'error',
  'status',
  'message',
  'x',
  'us"age',
)
const number = fc.oneof(fc.nat(), fc.constantFrom(-1, 1.5, 1e300, '7', null))
const usageStated = fc.record(
  { prompt_tokens: number, completion_tokens: number, x: fc.string() },
  { requiredKeys: [] },
)
const { value: anything } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.string(),
    fc.constantFrom('"}],\\', '\\"', 'usage', '\\'.repeat(40), 'x'.repeat(50)),
    number,
    usageStated,
    fc.array(tie('value')),
    fc.dictionary(member, tie('value')),
  ),
}))
const document = fc.record({
  usage: usageStated,
  x: anything,
  choices: anything,
  response: anything,
  y: anything,
})

await t.test('§3 a document is read alike, short or long, whole or in pieces, plain or in an event', (t) => {
  const long = 'x'.repeat(70_000)
  const readingOf = (type: string, text: string, cuts: readonly number[]) => {
    const tap = answerTap(openai, type)
    const bytes = Buffer.from(text)
    const edges = [0, ...cuts.map((cut) => cut % bytes.length).toSorted((a, b) => a - b), bytes.length]
    for (const [index, edge] of edges.slice(1).entries()) tap.observe(bytes.subarray(edges[index], edge))
    const { usage, tokensUnknown } = tap.read(tap.isWhole(true))
    return { ...usage, tokensUnknown }
  }
  fc.assert(
    fc.property(document, fc.array(fc.nat()), ({ x, y, ...stated }, cuts) => {
      const wanted = readingOf('application/json', JSON.stringify({ x, ...stated, y }), [])
      const escaped = JSON.stringify({ x, ...stated, y, long }).replace('"usage":', '"\\u0075s\\u0061ge":')
      for (const text of [
        JSON.stringify({ x, ...stated, y, long }),
        JSON.stringify({ long, x, ...stated, y }, null, 2),
        escaped,
      ]) {
        t.same(readingOf('application/json', text, cuts), wanted)
        const lines = text.split('\n').map((line) => `data: ${line}`)
        for (const newline of ['\n', '\r\n', '\r']) {
          const event = [': a', 'event: x', ...lines, '', 'data: [DONE]', '', ''].join(newline)
          t.same(readingOf(SSE, `\uFEFF${event}`, cuts), wanted)
        }
      }
    }),
    { numRuns: 60 },
  )
  t.end()
})

await t.test('§3 the line ends of a stream may be of every kind, and be cut anywhere', (t) => {
  for (const newline of ['\r\n', '\r', '\n']) {
    const bytes = Buffer.from(`\uFEFF${CHAT}`.replaceAll('\n', newline))
    for (const size of [1, 2, 3, 5, 7, 1_000]) {
      const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) =>
        bytes.subarray(i * size, (i + 1) * size),
      )
      t.same(readOpenai(SSE, chunks), CHAT_USAGE, `${JSON.stringify(newline)} by ${size}`)
    }
  }
  t.end()
})

await t.test('A3 an answer of 100 MB keeps little, and is counted at its end', (t) => {
  const piece = Buffer.alloc(65_536, 'iVBORw0KGgo=')
  const before = process.memoryUsage()
  const tap = answerTap(openai, SSE)
  tap.observe(
    Buffer.from('event: response.completed\ndata: {"type":"response.completed","response":{"output":"'),
  )
  let worst = 0
  for (let made = 0; made < 1_600; made += 1) {
    const { user } = process.cpuUsage()
    tap.observe(piece)
    worst = Math.max(worst, process.cpuUsage().user - user)
  }
  const { external, arrayBuffers } = process.memoryUsage()
  t.ok(external + arrayBuffers - before.external - before.arrayBuffers < 2 * MIB, 'nothing of it is kept')
  t.ok(worst < 20_000, `${worst / 1_000} ms for a piece`)
  tap.observe(Buffer.from('","usage":{"input_tokens":7,"output_tokens":9}}}\n\n'))
  t.ok(tap.isWhole(false))
  t.same(tap.usage(), { tokens: { input: 7, output: 9 } })
  t.end()
})
