import fc from 'fast-check'
import t from 'tap'
import { MemoryBudget } from '../../../../proxy/http/open-calls.ts'
import { answerTap } from '../../../../proxy/llm/dialects/answer-tap.ts'
import { anthropic } from '../../../../proxy/llm/dialects/anthropic.ts'
import type { Dialect } from '../../../../proxy/llm/dialects/dialect.ts'
import { openai } from '../../../../proxy/llm/dialects/openai.ts'
import type { ProviderUsage } from '../../../../proxy/llm/dialects/statements.ts'
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
  tokens: { input: 123, output: 42, cache_read: 100, cache_write_5m: 5, cache_write_1h: 15, reasoning: 30 },
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
