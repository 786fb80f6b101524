import t from 'tap'
import type { UnknownRecord } from '../../../../db/support/json.ts'
import { type ApiWire, WIRES } from '../../../../proxy/llm/dialects/registry.ts'
import type { TargetModel } from '../../../../proxy/llm/translate/model/target.ts'
import { answered, callBlock, finish, OPTIONS, textBlock, told } from '../../../support/llm/translate.ts'

// What other translators have lost, as users of theirs have reported it: the requests, with what is sent of
// them, and the answers. Cut streams, calls as servers send them, and reasoning that comes back have tests
// beside this one: answers.test.ts, to-openai.test.ts.

const CHAT: TargetModel = { ...OPTIONS, wire: 'chat', provider: 'local', model: 'qwen' }
const RESPONSES: TargetModel = { ...OPTIONS, wire: 'responses', provider: 'openai', model: 'gpt-5.6' }
const TARGETS: Readonly<Record<ApiWire, TargetModel>> = {
  messages: OPTIONS,
  chat: CHAT,
  responses: RESPONSES,
}

/** A request that was lost or broken elsewhere, and what is sent of it here. */
interface LostRequest {
  readonly lost: string
  readonly from: ApiWire
  readonly body: object
  /** The members that count, by the wire that they are told in. */
  readonly sent: Partial<Record<ApiWire, object>>
  readonly quirks?: Partial<TargetModel>
}

const use = (id: string, name = 'f', input: object = {}) => ({ type: 'tool_use', id, name, input })
const result = (id: string, content?: unknown) => ({ type: 'tool_result', tool_use_id: id, content })
const asked = (...content: readonly object[]) => ({ role: 'user', content })
const answer = (...content: readonly object[]) => ({ role: 'assistant', content })
const claude = (messages: readonly object[], more: object = {}) => ({
  ...{ model: 'planner', max_tokens: 100, messages },
  ...more,
})
const image = (data: string) => ({ type: 'image', source: { type: 'base64', media_type: 'image/png', data } })
const url = (data: string) => `data:image/png;base64,${data}`
const chatCall = (id: string, args = '{}') => ({
  id,
  type: 'function',
  function: { name: 'f', arguments: args },
})
const LONG = 'x'.repeat(70)

const REQUESTS: readonly LostRequest[] = [
  {
    lost: 'a result of nothing but a reference to a tool was dropped: fewer results than calls',
    from: 'messages',
    body: claude([
      answer(use('a'), use('b')),
      asked(result('a', [{ type: 'tool_reference', tool_name: 'read' }]), result('b')),
    ]),
    sent: {
      chat: {
        messages: [
          { tool_calls: [{ id: 'a' }, { id: 'b' }] },
          { role: 'tool', tool_call_id: 'a', content: '[tool read is available]' },
          { role: 'tool', tool_call_id: 'b', content: '' },
        ],
      },
      responses: {
        input: [
          { call_id: 'a' },
          { call_id: 'b' },
          { type: 'function_call_output', call_id: 'a', output: '[tool read is available]' },
          { type: 'function_call_output', call_id: 'b', output: '' },
        ],
      },
    },
  },
  {
    lost: 'pictures stood between two results, and a call lost its result',
    from: 'messages',
    body: claude([
      answer(use('a'), use('b')),
      asked(result('b', [image('BBBB')]), result('a', [image('AAAA')])),
    ]),
    sent: {
      chat: {
        messages: [
          { role: 'assistant' },
          { role: 'tool', tool_call_id: 'a' },
          { role: 'tool', tool_call_id: 'b' },
          {
            role: 'user',
            content: [
              { text: '[image 1 of the result of a]' },
              { image_url: { url: url('AAAA') } },
              { text: '[image 1 of the result of b]' },
              { image_url: { url: url('BBBB') } },
            ],
          },
        ],
      },
      responses: {
        input: [
          { call_id: 'a' },
          { call_id: 'b' },
          { call_id: 'a', output: [{ type: 'input_image', image_url: url('AAAA') }] },
          { call_id: 'b', output: [{ type: 'input_image', image_url: url('BBBB') }] },
        ],
      },
    },
  },
  {
    lost: 'the mark of a result that failed was lost with its picture',
    from: 'messages',
    body: claude([answer(use('a')), asked({ ...result('a', [image('AAAA')]), is_error: true })]),
    sent: {
      chat: { messages: [{}, { role: 'tool', content: '[error]' }, { role: 'user' }] },
      responses: {
        input: [{}, { output: [{ type: 'input_text', text: '[error]' }, { type: 'input_image' }] }],
      },
    },
  },
  {
    lost: 'stop words were dropped',
    from: 'chat',
    body: { model: 'm', messages: [], stop: ['A', 'B'] },
    sent: { messages: { stop_sequences: ['A', 'B'] } },
  },
  {
    lost: 'stop words of Anthropic were dropped',
    from: 'messages',
    body: claude([asked()], { stop_sequences: ['A'] }),
    sent: { chat: { stop: ['A'] } },
  },
  {
    lost: 'a system message in the middle moved to the front, and the first of the developer among the messages',
    from: 'messages',
    body: claude([
      { role: 'user', content: 'q' },
      { role: 'system', content: 'later' },
      { role: 'assistant', content: 'a' },
      { role: 'user', content: 'r' },
    ]),
    quirks: { laterSystem: 'in_place' },
    sent: {
      chat: { messages: [{ role: 'user' }, { role: 'system', content: 'later' }, { role: 'assistant' }, {}] },
      responses: { input: [{ role: 'user' }, { role: 'system' }, { role: 'assistant' }, {}] },
    },
  },
  {
    lost: 'the first message of the developer stood among the messages',
    from: 'chat',
    body: {
      model: 'm',
      messages: [
        { role: 'developer', content: 'd' },
        { role: 'user', content: 'q' },
      ],
    },
    sent: {
      messages: { system: [{ text: 'd' }], messages: [{ role: 'user' }] },
      responses: { input: [{ role: 'system' }, { role: 'user' }] },
    },
  },
  {
    lost: 'ids and names over 64 characters were sent, and refused',
    from: 'messages',
    body: claude([answer(use(LONG, LONG)), asked(result(LONG))], {
      tools: [{ name: LONG, input_schema: {} }],
      tool_choice: { type: 'tool', name: LONG },
    }),
    sent: {
      chat: {
        messages: [
          { tool_calls: [{ id: /^call_[\da-f]{32}$/, function: { name: /^x{55}_[\da-f]{8}$/ } }] },
          { tool_call_id: /^call_[\da-f]{32}$/ },
        ],
        tools: [{ function: { name: /^x{55}_[\da-f]{8}$/ } }],
        tool_choice: { function: { name: /^x{55}_[\da-f]{8}$/ } },
      },
    },
  },
  {
    lost: 'a turn of tools came back to DeepSeek without its reasoning',
    from: 'messages',
    body: claude([
      answer({ type: 'thinking', thinking: 'hm', signature: 'S' }, use('a')),
      asked(result('a')),
    ]),
    quirks: { replaysReasoning: true },
    sent: { chat: { messages: [{ role: 'assistant', reasoning_content: '', tool_calls: [{}] }, {}] } },
  },
  {
    lost: 'a custom tool became an empty object, and a namespace was dropped',
    from: 'responses',
    body: {
      ...{ model: 'm', store: false },
      input: [
        { type: 'custom_tool_call', call_id: 'a', name: 'patch', input: '*** x' },
        { type: 'custom_tool_call_output', call_id: 'a', output: 'ok' },
        { type: 'function_call', call_id: 'b', namespace: 'n', name: 'f', arguments: '{"x":1}' },
        { type: 'function_call_output', call_id: 'b', output: 'B' },
      ],
      tools: [
        { type: 'custom', name: 'patch', description: 'd' },
        {
          type: 'namespace',
          name: 'n',
          description: '',
          tools: [{ type: 'function', name: 'f', parameters: {} }],
        },
      ],
    },
    sent: {
      chat: {
        messages: [
          { tool_calls: [{ id: 'a', function: { name: 'patch', arguments: '{"input":"*** x"}' } }] },
          { tool_call_id: 'a', content: 'ok' },
          { tool_calls: [{ id: 'b', function: { name: 'n__f', arguments: '{"x":1}' } }] },
          { tool_call_id: 'b', content: 'B' },
        ],
        tools: [
          { function: { name: 'patch', parameters: { properties: { input: { type: 'string' } } } } },
          { function: { name: 'n__f' } },
        ],
      },
    },
  },
  {
    lost: 'tools that Codex puts into the input, and adds again, were lost',
    from: 'responses',
    body: {
      ...{ model: 'm', store: false },
      input: [
        ...['old', 'new'].map((description) => ({
          ...{ type: 'additional_tools', id: 'at_1', role: 'developer' },
          tools: [
            {
              ...{ type: 'namespace', name: 'functions', description: '' },
              tools: [{ type: 'custom', name: 'exec', description }],
            },
          ],
        })),
        { role: 'user', content: 'q' },
        { type: 'custom_tool_call', call_id: 'a', namespace: 'functions', name: 'exec', input: 'x' },
        { type: 'custom_tool_call_output', call_id: 'a', output: 'X' },
      ],
    },
    sent: {
      chat: {
        messages: [{ role: 'user' }, { tool_calls: [{ function: { name: 'functions__exec' } }] }, {}],
        tools: [{ function: { name: 'functions__exec', description: 'new' } }],
      },
      messages: { messages: [{}, {}, {}], tools: [{ name: 'functions__exec', description: 'new' }] },
    },
  },
  {
    lost: 'the most tokens were not told to a local server',
    from: 'responses',
    body: { model: 'm', store: false, input: 'q', max_output_tokens: 7 },
    sent: { chat: { max_tokens: 7 }, messages: { max_tokens: 7 } },
  },
  {
    lost: 'the most tokens were told by a name that the server does not know',
    from: 'messages',
    body: claude([asked({ type: 'text', text: 'q' })]),
    quirks: { maxTokensMember: 'max_completion_tokens' },
    sent: { chat: { max_completion_tokens: 100 } },
  },
  {
    lost: 'a history with calls and no tools was refused',
    from: 'messages',
    body: claude([answer(use('a', 'f', { x: 1 })), asked(result('a', 'A'))]),
    sent: {
      chat: {
        messages: [
          { tool_calls: [chatCall('a', '{"x":1}')] },
          { role: 'tool', tool_call_id: 'a', content: 'A' },
        ],
      },
      responses: {
        input: [
          { type: 'function_call', call_id: 'a' },
          { type: 'function_call_output', output: 'A' },
        ],
      },
    },
  },
  {
    lost: 'a history with calls and no tools was refused by Claude',
    from: 'chat',
    body: {
      model: 'm',
      messages: [
        { role: 'assistant', tool_calls: [chatCall('a'), chatCall('b')] },
        { role: 'tool', tool_call_id: 'a', content: 'A' },
        { role: 'tool', tool_call_id: 'b', content: 'B' },
      ],
    },
    sent: {
      messages: {
        messages: [
          {
            content: [
              { type: 'tool_use', id: 'a' },
              { type: 'tool_use', id: 'b' },
            ],
          },
          { role: 'user', content: [{ tool_use_id: 'a' }, { tool_use_id: 'b' }] },
        ],
      },
    },
  },
]

for (const { lost, from, body, sent, quirks } of REQUESTS)
  await t.test(`elsewhere ${lost}`, async (t) => {
    for (const wire of WIRES) {
      const expected = sent[wire]
      if (expected === undefined) continue
      const made: UnknownRecord = JSON.parse(told(from, body, { ...TARGETS[wire], ...quirks }).body)
      t.match(made, expected, wire)
      // A list has no more than is expected: tap's match is content with its beginning.
      for (const [name, list] of Object.entries(expected))
        if (Array.isArray(list)) t.match(made[name], { length: list.length }, `${wire}: ${name}`)
    }
  })

await t.test('elsewhere the ids of items went back to a server that keeps none', async (t) => {
  const message = { type: 'message', id: 'msg_1', status: 'completed', role: 'assistant' }
  const input = [
    { ...message, content: [{ type: 'output_text', text: 'a', annotations: [] }] },
    { type: 'function_call', id: 'fc_1', status: 'completed', call_id: 'a', name: 'f', arguments: '{}' },
    { type: 'function_call_output', id: 'fco_1', call_id: 'a', output: 'A' },
  ]
  for (const target of [OPTIONS, CHAT])
    t.notMatch(told('responses', { model: 'm', store: false, input }, target).body, /msg_1|fc_1|fco_1/)
  const { body } = told('messages', claude([answer(use('a')), asked(result('a'))]), RESPONSES)
  const { input: items, store }: { input: readonly object[]; store: boolean } = JSON.parse(body)
  t.same(
    items.map((item) => 'id' in item),
    [false, false],
  )
  t.equal(store, false)
})

const chunk = (delta: object, finished: string | null = null): string =>
  `data: ${JSON.stringify({ id: 'c', choices: [{ index: 0, delta, finish_reason: finished }] })}\n\n`
const ofResponses = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

/** The report of an answer elsewhere; and the answer, its wire, and what is said of it here. */
const ANSWERS: readonly (readonly [
  lost: string,
  wire: 'chat' | 'responses',
  stream: string,
  said: RegExp,
])[] = [
  [
    'an answer at its most tokens was said to be complete',
    'chat',
    `${chunk({ content: 'a' }, 'length')}data: [DONE]\n\n`,
    /"stop_reason":"max_tokens"/,
  ],
  [
    'an answer with an empty reason in each chunk broke off',
    'chat',
    `${chunk({ content: 'a' }, '')}${chunk({}, 'stop')}data: [DONE]\n\n`,
    /"stop_reason":"end_turn"/,
  ],
  [
    'an answer of Responses at its most tokens was said to be complete',
    'responses',
    ofResponses('response.created', { response: { id: 'r' } }) +
      ofResponses('response.incomplete', {
        response: { id: 'r', status: 'incomplete', incomplete_details: { reason: 'max_output_tokens' } },
      }),
    /"stop_reason":"max_tokens"/,
  ],
  [
    'a stream that begins with a full context was asked for again and again',
    'responses',
    ofResponses('response.created', { response: { id: 'r' } }) +
      ofResponses('response.failed', {
        response: { id: 'r', status: 'failed', error: { code: 'context_length_exceeded', message: 'x' } },
      }),
    /^event: error\ndata: .*"invalid_request_error","message":"prompt is too long: /m,
  ],
  [
    'a stream that is an error of a full context was asked for again and again',
    'chat',
    'data: {"error":{"code":400,"message":"This model\'s maximum context length is 8 tokens."}}\n\n',
    /^event: error\ndata: .*"invalid_request_error","message":"prompt is too long: /m,
  ],
  [
    'reasoning by another name of its member was lost',
    'chat',
    `${chunk({ reasoning: 'hm' })}${chunk({ content: 'a' }, 'stop')}data: [DONE]\n\n`,
    /"signature":"sp1\./,
  ],
  [
    'calls that ended with the reason of a text were not run',
    'chat',
    `${chunk({ tool_calls: [{ index: 0, ...chatCall('a') }] }, 'stop')}data: [DONE]\n\n`,
    /"stop_reason":"tool_use"/,
  ],
]

for (const [lost, wire, stream, said] of ANSWERS)
  await t.test(`elsewhere ${lost}`, async (t) => {
    const request = claude([asked({ type: 'text', text: 'q' })], { stream: true })
    const target: TargetModel =
      wire === 'chat' && stream.includes('"reasoning"')
        ? { ...CHAT, reasoningMember: 'reasoning' }
        : TARGETS[wire]
    t.match(answered(told('messages', request, target), stream), said)
  })

await t.test('elsewhere Codex did not know of a full context in a stream', async (t) => {
  const error = { type: 'invalid_request_error', message: 'prompt is too long: 2 tokens > 1 maximum' }
  const stream = `event: error\ndata: ${JSON.stringify({ type: 'error', error })}\n\n`
  const request = { model: 'm', input: 'q', store: false, stream: true }
  t.match(answered(told('responses', request), stream), /response\.failed.*"code":"context_length_exceeded"/)
  t.match(
    answered(told('chat', { model: 'm', messages: [], stream: true }), stream),
    /"error":\{.*"code":"context_length_exceeded"/,
  )
})

await t.test('elsewhere an answer in which blocks overlap was told so', async (t) => {
  const request = { model: 'm', messages: [], stream: true }
  const stream = textBlock(0, 'a') + callBlock(1, 'x', 'f', '{"a":', '1}') + callBlock(2, 'y', 'f', '{}')
  const begun = `event: message_start\ndata: ${JSON.stringify({ type: 'message_start', message: { id: 'm', usage: { input_tokens: 1 } } })}\n\n`
  const written = answered(told('chat', request), begun + stream + finish('tool_use'))
  t.match(written, /"index":0,"id":"x"[\s\S]*"index":1,"id":"y"/)
})
