import Anthropic from '@anthropic-ai/sdk'
import fc from 'fast-check'
import OpenAI from 'openai'
import t from 'tap'
import type { ApiWire } from '../../../../proxy/llm/dialects/dialect.ts'
import type { TargetModel } from '../../../../proxy/llm/translate/model/target.ts'
import { kindsOf, sdkTypes } from '../../../support/llm/sdk-types.ts'
import { answered, OPTIONS, told, translated } from '../../../support/llm/translate.ts'

const CHAT: TargetModel = { ...OPTIONS, wire: 'chat', provider: 'local', model: 'qwen' }
const RESPONSES: TargetModel = { ...OPTIONS, wire: 'responses', provider: 'openai', model: 'gpt-5.6' }

/** Returns the body that is sent, without its model. */
function sentOf(body: object, target: TargetModel, from: ApiWire = 'messages'): Record<string, unknown> {
  const { model, ...sent } = JSON.parse(told(from, body, target).body)
  if (model !== target.model) throw new Error(`another model: ${model}`)
  return sent
}

const messagesOf = (messages: readonly object[], more: object = {}) => ({
  ...{ model: 'planner', max_tokens: 100, messages },
  ...more,
})

const HISTORY = messagesOf(
  [
    { role: 'user', content: [{ type: 'text', text: 'q', cache_control: { type: 'ephemeral' } }] },
    {
      role: 'assistant',
      content: [
        { type: 'thinking', thinking: 'hm', signature: 'of another' },
        { type: 'text', text: 'I look' },
        { type: 'tool_use', id: 'toolu_a', name: 'read', input: { path: 'a' } },
        { type: 'tool_use', id: 'toolu_b', name: 'read', input: {} },
      ],
    },
    {
      role: 'user',
      content: [
        { type: 'tool_result', tool_use_id: 'toolu_b', is_error: true, content: 'no such file' },
        {
          type: 'tool_result',
          tool_use_id: 'toolu_a',
          content: [
            { type: 'text', text: 'A' },
            { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
          ],
        },
        { type: 'text', text: 'go on' },
      ],
    },
  ],
  {
    system: [
      { type: 'text', text: 'x-anthropic-billing-header: cc_version=1' },
      { type: 'text', text: 's' },
    ],
    metadata: { user_id: 'u' },
    thinking: { type: 'enabled', budget_tokens: 8_000 },
    tools: [
      {
        name: 'read',
        description: 'd',
        input_schema: { type: 'object' },
        cache_control: { type: 'ephemeral' },
      },
    ],
    tool_choice: { type: 'auto', disable_parallel_tool_use: true },
  },
)

await t.test('§ a Messages request is told to Chat Completions', async (t) => {
  const made = told('messages', HISTORY, CHAT)
  t.same(JSON.parse(made.body), {
    model: 'qwen',
    messages: [
      { role: 'system', content: 's' },
      { role: 'user', content: 'q' },
      {
        role: 'assistant',
        content: 'I look',
        tool_calls: [
          { id: 'toolu_a', type: 'function', function: { name: 'read', arguments: '{"path":"a"}' } },
          { id: 'toolu_b', type: 'function', function: { name: 'read', arguments: '{}' } },
        ],
      },
      { role: 'tool', tool_call_id: 'toolu_a', content: 'A' },
      { role: 'tool', tool_call_id: 'toolu_b', content: '[error]\nno such file' },
      {
        role: 'user',
        content: [
          { type: 'text', text: '[image 1 of the result of toolu_a]' },
          { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
          { type: 'text', text: 'go on' },
        ],
      },
    ],
    max_tokens: 100,
    tools: [
      { type: 'function', function: { name: 'read', description: 'd', parameters: { type: 'object' } } },
    ],
    tool_choice: 'auto',
    parallel_tool_calls: false,
    reasoning_effort: 'medium',
  })
  t.same(made.dropped, ['attribution', 'cache', 'foreign_reasoning', 'thinking_budget', 'user'])
  t.same(made.carried, ['is_error', 'tool_image'])
})

await t.test('§ a Messages request is told to Responses', async (t) => {
  const { input, ...more } = sentOf(HISTORY, RESPONSES)
  t.same(input, [
    { type: 'message', role: 'system', content: [{ type: 'input_text', text: 's' }] },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'q' }] },
    { type: 'message', role: 'assistant', content: [{ type: 'output_text', text: 'I look' }] },
    { type: 'function_call', call_id: 'toolu_a', name: 'read', arguments: '{"path":"a"}' },
    { type: 'function_call', call_id: 'toolu_b', name: 'read', arguments: '{}' },
    {
      type: 'function_call_output',
      call_id: 'toolu_a',
      output: [
        { type: 'input_text', text: 'A' },
        { type: 'input_image', detail: 'auto', image_url: 'data:image/png;base64,AAAA' },
      ],
    },
    { type: 'function_call_output', call_id: 'toolu_b', output: '[error]\nno such file' },
    { type: 'message', role: 'user', content: [{ type: 'input_text', text: 'go on' }] },
  ])
  t.same(more, {
    max_output_tokens: 100,
    tools: [
      { type: 'function', name: 'read', description: 'd', parameters: { type: 'object' }, strict: false },
    ],
    tool_choice: 'auto',
    parallel_tool_calls: false,
    reasoning: { effort: 'medium' },
    store: false,
    include: ['reasoning.encrypted_content'],
  })
  const session = { ...RESPONSES, isCached: true, cacheKey: 'of a session' }
  t.equal(sentOf(HISTORY, session).prompt_cache_key, 'of a session')
  t.equal(sentOf(HISTORY, { ...session, isCached: false }).prompt_cache_key, undefined)
})

/** A system message among others, as the beta of the Messages API has it. */
const later = (content: unknown, more: object = {}) => ({ role: 'system', content, ...more })
const asks = (content: string) => ({ role: 'user', content })
const change = (type: 'tool_addition' | 'tool_removal', tool: object) => ({ type, tool })
const named = (name: string) => ({ type: 'tool_reference', name })
const defined = (name: string) => ({ type: 'tool_definition', definition: { name, input_schema: {} } })

await t.test(
  '§ a later system message stands until its time is over; its effort counts if it is the last',
  async (t) => {
    const once = { clear_at: 'next_user_message' }
    const effort = (word: string) => ({ output_config: { effort: word } })
    const of = (messages: readonly object[], more: object = {}) =>
      sentOf(messagesOf(messages, more), { ...CHAT, laterSystem: 'in_place' })
    const messages = [
      asks('a'),
      later('gone', { ...once, ...effort('high') }),
      asks('b'),
      later('kept', once),
    ]
    t.same(of([...messages, later('always', { clear_at: 'never' })], effort('low')), {
      messages: [asks('a'), asks('b'), later('kept'), later('always')].toSpliced(0, 2, {
        role: 'user',
        content: [
          { type: 'text', text: 'a' },
          { type: 'text', text: 'b' },
        ],
      }),
      ...{ max_tokens: 100, reasoning_effort: 'high' },
    })
    t.match(of([...messages, { role: 'system', ...effort('max') }]), { reasoning_effort: 'max' })
    t.match(of(messages, { thinking: { type: 'disabled' } }), { reasoning_effort: 'none' })
    for (const [field, message] of [
      ['messages[1].clear_at', later('a', { clear_at: 'tomorrow' })],
      ['messages[1].output_config.effort', later('a', effort('most'))],
      ['messages[1].content', { role: 'system' }],
      ['messages[1].clear_at', { ...asks('b'), ...once }],
    ] as const)
      t.match(translated('messages', messagesOf([asks('a'), message]), CHAT), [{ field, loss: 'unknown' }])
  },
)

await t.test(
  '§ tools that come and go are said in text, and those in force at the end are told',
  async (t) => {
    const tools = ['read', 'write', 'find'].map((name) => ({ name, input_schema: {} }))
    const messages = [
      asks('a'),
      later([
        { type: 'text', text: 'from now on' },
        change('tool_removal', named('read')),
        change('tool_removal', named('find')),
      ]),
      asks('b'),
      later(
        [
          change('tool_addition', named('find')),
          change('tool_addition', defined('new')),
          { type: 'text', text: 'gone' },
        ],
        { clear_at: 'next_user_message' },
      ),
      asks('c'),
    ]
    const made = told('messages', messagesOf(messages, { tools }), CHAT)
    const sent = JSON.parse(made.body)
    t.same(
      sent.tools.map((tool: { function: { name: string } }) => tool.function.name),
      ['write', 'find', 'new'],
    )
    t.same(
      sent.messages.map(({ content }: { content: string }) => content),
      [
        ...['a', 'from now on', '[tool read is no longer available]', '[tool find is no longer available]'],
        ...['b', '[tool find is available]', '[tool new is available]', 'c'],
      ],
    )
    t.match(made.carried, ['system_as_user', 'tool_changes'])
    for (const [loss, field, one] of [
      ['unknown', 'messages[1].content[0].tool', change('tool_addition', named('nobody'))],
      ['unknown', 'messages[1].content[0].tool', change('tool_removal', defined('new'))],
      [
        'hosted_servers',
        'messages[1].content[0].tool',
        change('tool_removal', { type: 'mcp_toolset_reference', server_name: 's' }),
      ],
      [
        'client_tools',
        'messages[1].content[0].tool.definition',
        change('tool_addition', {
          type: 'tool_definition',
          definition: { type: 'bash_20250124', name: 'bash' },
        }),
      ],
    ] as const)
      t.same(translated('messages', messagesOf([asks('a'), later([one])], { tools }), CHAT), [
        { field, loss },
      ])
    const choice = { tools, tool_choice: { type: 'tool', name: 'read' } }
    t.same(translated('messages', messagesOf(messages, choice), CHAT), [
      { field: 'tool_choice', loss: 'tool_choice' },
    ])
  },
)

await t.test('§ what OpenAI’s wires have, they tell each other', async (t) => {
  const chat = {
    model: 'm',
    messages: [{ role: 'user', content: 'q' }],
    seed: 1,
    verbosity: 'low',
    response_format: { type: 'json_object' },
  }
  t.same(translated('chat', chat, RESPONSES), [{ field: 'seed', loss: 'seed' }])
  const { seed, ...rest } = chat
  t.match(sentOf(rest, RESPONSES, 'chat'), { text: { verbosity: 'low', format: { type: 'json_object' } } })
  const responses = {
    model: 'm',
    input: 'q',
    store: false,
    max_output_tokens: 5,
    text: { verbosity: 'high' },
    reasoning: { effort: 'low' },
  }
  t.match(sentOf(responses, CHAT, 'responses'), {
    messages: [{ role: 'user', content: 'q' }],
    ...{ max_tokens: 5, verbosity: 'high', reasoning_effort: 'low' },
  })
})

await t.test('§ what a target has not is refused by name', async (t) => {
  const of = (
    more: object,
    target: TargetModel,
    messages: readonly object[] = [{ role: 'user', content: 'q' }],
  ) => translated('messages', messagesOf(messages, more), target)
  t.same(of({ top_k: 5 }, RESPONSES), [{ field: 'top_k', loss: 'top_k' }])
  t.match(sentOf(messagesOf([], { top_k: 5 }), CHAT), { top_k: 5 })
  t.same(of({ tools: [{ type: 'web_search_20260318', name: 'web_search' }] }, CHAT), [
    { field: 'tools[0]', loss: 'hosted_tools' },
  ])
  t.same(of({ tools: [{ type: 'bash_20250124', name: 'bash' }] }, CHAT), [
    { field: 'tools[0]', loss: 'client_tools' },
  ])
  t.same(of({ container: 'c' }, CHAT), [{ field: 'container', loss: 'provider_state' }])
  t.same(of({ unheard_of: 1 }, CHAT), [{ field: 'unheard_of', loss: 'unknown' }])
  t.same(
    of({}, CHAT, [
      { role: 'user', content: 'q' },
      { role: 'assistant', content: '{' },
    ]),
    [{ field: 'messages', loss: 'prefill' }],
  )
  const url = { type: 'document', source: { type: 'url', url: 'https://x.example/a.pdf' } }
  t.same(of({}, CHAT, [{ role: 'user', content: [url] }]), [{ field: 'messages', loss: 'document_url' }])
  const file = { type: 'image', source: { type: 'file', file_id: 'f' } }
  t.match(of({}, CHAT, [{ role: 'user', content: [file] }]), [{ loss: 'provider_state' }])
})

const chunk = (delta: object, finish: string | null = null, more: object = {}): string =>
  `data: ${JSON.stringify({ id: 'c1', choices: [{ index: 0, delta, finish_reason: finish }], ...more })}\n\n`

const USAGE = { prompt_tokens: 17, completion_tokens: 20, prompt_tokens_details: { cached_tokens: 5 } }
const usage = `data: ${JSON.stringify({ id: 'c1', choices: [], usage: USAGE })}\n\n`
const DONE = 'data: [DONE]\n\n'
const calls = (...list: readonly object[]) => ({ tool_calls: list })
const piece = (args: string, name?: string, id?: string, index = 0) => ({
  index,
  ...(id !== undefined && { id }),
  function: { ...(name !== undefined && { name }), arguments: args },
})

const event = (type: string, members: object): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

const CHAT_STREAM =
  chunk({ role: 'assistant', content: '' }) +
  chunk({ reasoning_content: 'hm' }) +
  chunk({ content: 'Hé' }) +
  chunk({ content: 'llo' }) +
  chunk(calls(piece('', 'read', 'call_1'))) +
  chunk(calls(piece('{"path":'))) +
  chunk(calls(piece('"a"}'))) +
  chunk(calls(piece('{}', 'read', 'call_2', 1))) +
  chunk({}, 'tool_calls') +
  usage

const item = (index: number, whole: object, ...events: readonly string[]): string =>
  event('response.output_item.added', { output_index: index, item: whole }) +
  events.join('') +
  event('response.output_item.done', { output_index: index, item: whole })

const RESPONSES_STREAM =
  event('response.created', { response: { id: 'resp_1' } }) +
  item(0, { id: 'rs_1', type: 'reasoning', summary: [], encrypted_content: 'ENC' }) +
  item(
    1,
    { id: 'msg_1', type: 'message', content: [{ type: 'output_text', text: 'Héllo' }] },
    event('response.output_text.delta', { output_index: 1, content_index: 0, delta: 'Hé' }),
    event('response.output_text.delta', { output_index: 1, content_index: 0, delta: 'llo' }),
  ) +
  item(
    2,
    { id: 'fc_1', type: 'function_call', call_id: 'call_1', name: 'read', arguments: '{"path":"a"}' },
    event('response.function_call_arguments.delta', { output_index: 2, delta: '{"path":"a"}' }),
  ) +
  item(3, { id: 'fc_2', type: 'function_call', call_id: 'call_2', name: 'read', arguments: '{}' })

const RESPONSES_END = event('response.completed', {
  response: {
    id: 'resp_1',
    status: 'completed',
    usage: { input_tokens: 17, input_tokens_details: { cached_tokens: 5 }, output_tokens: 20 },
  },
})

const STREAMS = [
  ['chat', CHAT, CHAT_STREAM, DONE],
  ['responses', RESPONSES, RESPONSES_STREAM, RESPONSES_END],
] as const

const ASKED = messagesOf([{ role: 'user', content: 'q' }], {
  stream: true,
  tools: [{ name: 'read', input_schema: {} }],
})

/** The official client, which gets this text for an answer. */
const read = (text: string, isStream = true) =>
  new Anthropic({
    ...{ apiKey: 'none', maxRetries: 0 },
    fetch: async () =>
      new Response(text, {
        headers: { 'content-type': isStream ? 'text/event-stream' : 'application/json' },
      }),
  }).messages

const SAID = {
  model: 'planner',
  stop_reason: 'tool_use',
  content: [
    { type: 'thinking', signature: /^sp1\./ },
    { type: 'text', text: 'Héllo' },
    { type: 'tool_use', id: 'call_1', name: 'read', input: { path: 'a' } },
    { type: 'tool_use', id: 'call_2', name: 'read', input: {} },
  ],
  usage: { input_tokens: 12, cache_read_input_tokens: 5, output_tokens: 20 },
}

await t.test(
  '§ the official SDK reads a Messages stream that was another one, however it is cut',
  async (t) => {
    for (const [wire, target, stream, end] of STREAMS) {
      const whole = stream + end
      const expected = answered(told('messages', ASKED, target), whole)
      t.match(
        await read(expected)
          .stream({ ...ASKED, model: 'm' } as never)
          .finalMessage(),
        SAID,
        wire,
      )
      const cuts = fc.array(fc.nat(Buffer.byteLength(whole)), { maxLength: 200 })
      fc.assert(
        fc.property(cuts, (places) => answered(told('messages', ASKED, target), whole, places) === expected),
        { numRuns: 30 },
      )
    }
  },
)

await t.test('§ a stream that is cut anywhere before its end never ends cleanly', async (t) => {
  for (const [wire, target, stream] of STREAMS) {
    const bytes = Buffer.from(stream)
    // Of a chat, its reason is its end, also where nothing follows it.
    const last = wire === 'chat' ? bytes.indexOf('"finish_reason":"tool_calls"') : bytes.length
    const faults: number[] = []
    for (let at = 0; at < last; at += 1) {
      const { answer } = told('messages', ASKED, target)
      const text = Buffer.concat([answer.push(bytes.subarray(0, at)), answer.flush()]).toString()
      if (answer.isWhole || text.includes('message_stop') || !text.includes('event: error')) faults.push(at)
    }
    t.same(faults, [], wire)
  }
})

/** The calls that the official SDK reads of chunks, as servers of that wire really send them. */
const CALLS: Readonly<Record<string, readonly [stream: string, inputs: readonly object[]]>> = {
  'several in one chunk, all with index 0 and one id': [
    chunk(calls(piece('{"a":1}', 'read', 'x'), piece('{"a":2}', 'read', 'x')), 'stop') + DONE,
    [{ a: 1 }, { a: 2 }],
  ],
  'without ids': [
    chunk(calls(piece('{"a":1}', 'read'))) +
      chunk(calls(piece('{"a":2}', 'read'))) +
      chunk({}, 'tool_calls') +
      DONE,
    [{ a: 1 }, { a: 2 }],
  ],
  'the name in each piece': [
    chunk(calls(piece('{"a"', 'read', 'x'))) +
      chunk(calls(piece(':1}', 'read', 'x'))) +
      chunk({}, 'tool_calls') +
      DONE,
    [{ a: 1 }],
  ],
  interleaved: [
    chunk(calls(piece('{"a"', 'read', 'x', 0))) +
      chunk(calls(piece('{"b"', 'read', 'y', 1))) +
      chunk(calls(piece(':1}', undefined, undefined, 0))) +
      chunk(calls(piece(':2}', undefined, undefined, 1))) +
      chunk({}, 'tool_calls') +
      DONE,
    [{ a: 1 }, { b: 2 }],
  ],
  'the reason twice, usage before it, no [DONE]': [
    usage + chunk(calls(piece('{}', 'read', 'x'))) + chunk({}, 'tool_calls') + chunk({}, 'tool_calls'),
    [{}],
  ],
  'arguments that are an object': [
    chunk(calls({ index: 0, id: 'x', function: { name: 'read', arguments: { a: 1 } } }), 'stop') + DONE,
    [{ a: 1 }],
  ],
}

await t.test('§ calls are read as servers really send them, and each has an id of its own', async (t) => {
  for (const [name, [stream, inputs]] of Object.entries(CALLS)) {
    const text = answered(told('messages', ASKED, CHAT), chunk({ role: 'assistant' }) + stream)
    const message = await read(text)
      .stream({ ...ASKED, model: 'm' } as never)
      .finalMessage()
    const used = message.content.filter((block) => block.type === 'tool_use')
    t.same(
      used.map(({ input }) => input),
      inputs,
      name,
    )
    t.equal(new Set(used.map(({ id }) => id)).size, inputs.length, name)
    t.equal(message.stop_reason, 'tool_use', name)
  }
})

await t.test('§ reasoning that comes late does not split the text', async (t) => {
  const stream =
    chunk({ content: 'a' }) + chunk({ reasoning_content: 'late' }) + chunk({ content: 'b' }, 'stop') + DONE
  const text = answered(told('messages', ASKED, CHAT), stream)
  const { content } = await read(text)
    .stream({ ...ASKED, model: 'm' } as never)
    .finalMessage()
  t.match(content, [{ type: 'text', text: 'ab' }, { type: 'thinking' }])
})

await t.test('§ stop words that the target does not take end the answer here', async (t) => {
  const asked = { ...ASKED, stop_sequences: ['END'] }
  const stream =
    event('response.created', { response: { id: 'r' } }) +
    event('response.output_item.added', { output_index: 0, item: { type: 'message' } }) +
    ['some E', 'N', 'D more']
      .map((delta) => event('response.output_text.delta', { output_index: 0, content_index: 0, delta }))
      .join('')
  const said = { content: [{ text: 'some ' }], stop_reason: 'stop_sequence', stop_sequence: 'END' }
  const whole = event('response.output_item.done', { output_index: 0, item: { type: 'message' } })
  const refused = event('response.failed', { response: { status: 'failed' } })
  for (const [name, rest, usage] of [
    ['the usage of the provider is told', whole + RESPONSES_END, { input_tokens: 12, output_tokens: 20 }],
    ['none is stated', '', { input_tokens: 0, output_tokens: 0 }],
    ['it fails after the stop word', refused, { input_tokens: 0, output_tokens: 0 }],
  ] as const) {
    const { answer } = told('messages', asked, RESPONSES)
    const shown = answer.push(Buffer.from(stream)).toString()
    t.match(shown, 'content_block_stop', name)
    t.notMatch(shown, 'message_stop', `${name}: the last events wait for it`)
    t.match([answer.isEnding, answer.isStopped, answer.isWhole], [true, true, false], name)
    const text = shown + Buffer.concat([answer.push(Buffer.from(rest)), answer.flush()]).toString()
    const message = await read(text)
      .stream({ ...asked, model: 'm' } as never)
      .finalMessage()
    t.match(message, { ...said, usage }, name)
    t.equal(answer.isWhole, true, name)
  }
})

await t.test(
  '§ a stop word is the end that its caller asked for, by what the server says of it',
  async (t) => {
    const asked = { ...ASKED, stop_sequences: ['END', 'x'] }
    const ended = (more: object, text = 'a'): string =>
      `data: ${JSON.stringify({ choices: [{ delta: { content: text }, finish_reason: 'stop', ...more }] })}\n\n`
    const messageOf = async (more: object, target: TargetModel, text?: string) =>
      read(answered(told('messages', asked, target), ended(more, text)))
        .stream({ ...asked, model: 'm' } as never)
        .finalMessage()
    const atWord = { stop_reason: 'stop_sequence', stop_sequence: 'END' }
    t.match(await messageOf({ stop_reason: 'END' }, CHAT), atWord, 'vLLM')
    t.match(await messageOf({ matched_stop: 'END' }, CHAT), atWord, 'SGLang')
    const done = { stop_reason: 'end_turn', stop_sequence: null }
    for (const more of [{}, { stop_reason: null }, { stop_reason: 7 }, { stop_reason: 'end_turn' }])
      t.match(await messageOf(more, CHAT), done, 'a word that nobody asked for is none')

    const silent = { ...CHAT, statesStopWord: false }
    t.match(told('messages', asked, silent), { carried: ['stop_words'], dropped: [] })
    t.equal(sentOf(asked, silent).stop, undefined)
    t.match(
      await messageOf({}, silent, 'a END b'),
      { ...atWord, content: [{ text: 'a ' }] },
      'it is ended here',
    )
    const accepting = { ...silent, accepted: new Set(['stop_word'] as const) }
    t.match(told('messages', asked, accepting), { carried: [], dropped: ['stop_word'] })
    t.same(sentOf(asked, accepting).stop, ['END', 'x'])
    t.match(await messageOf({}, accepting), done, 'an operator may do without')
    t.match(told('messages', ASKED, accepting).dropped, [], 'nothing is lost of a request without any')
  },
)

await t.test('§ a server that takes no name of a tool is offered that tool alone', async (t) => {
  const local = { ...CHAT, takesNamedChoice: false }
  const tools = ['read', 'write'].map((name) => ({ name, input_schema: {} }))
  const named = { ...ASKED, tools, tool_choice: { type: 'tool', name: 'write' } }
  t.match(sentOf(named, local), { tool_choice: 'required', tools: [{ function: { name: 'write' } }] })
  t.equal((sentOf(named, local).tools as unknown[]).length, 1)
  t.same(told('messages', named, local).carried, ['allowed_tools'])
  t.match(sentOf(named, CHAT), { tool_choice: { function: { name: 'write' } }, tools: { length: 2 } })
  const any = { ...named, tool_choice: { type: 'any' } }
  t.match(sentOf(any, local), { tool_choice: 'required', tools: { length: 2 } })
})

await t.test('§ a chat that has said its reason can end, with the usage that has come', async (t) => {
  for (const [rest, tokens] of [
    ['', 0],
    [usage, 20],
  ] as const) {
    const { answer } = told('messages', ASKED, CHAT)
    const begun = answer.push(Buffer.from(chunk({ role: 'assistant', content: 'Hi' })))
    t.equal(answer.isEnding, false)
    const written = [begun, answer.push(Buffer.from(chunk({}, 'stop') + rest))]
    t.match([answer.isEnding, answer.isWhole], [true, false])
    const text = Buffer.concat([...written, answer.ping(), answer.flush()]).toString()
    const message = await read(text)
      .stream({ ...ASKED, model: 'm' } as never)
      .finalMessage()
    t.match(message, { stop_reason: 'end_turn', usage: { output_tokens: tokens } })
    t.equal(answer.ping().length, 0, 'nothing is written after its end')
  }
})

await t.test('§ whole answers are told, and what is none is not', async (t) => {
  const asked = { ...ASKED, stream: false }
  const message = {
    role: 'assistant',
    content: 'Hi',
    tool_calls: [{ id: 'x', type: 'function', function: { name: 'read', arguments: '{"a":1}' } }],
  }
  const completion = { id: 'c', choices: [{ index: 0, message, finish_reason: 'tool_calls' }], usage: USAGE }
  const document = told('messages', asked, CHAT).answer.document(Buffer.from(JSON.stringify(completion)))
  t.match(await read(String(document), false).create({ ...asked, model: 'm' } as never), {
    content: [{ text: 'Hi' }, { type: 'tool_use', id: 'x', input: { a: 1 } }],
    ...{ stop_reason: 'tool_use', usage: { input_tokens: 12 } },
  })
  for (const text of ['{}', '[]', '{', '{"choices":[]}', '{"error":{"message":"x"}}'])
    t.equal(told('messages', asked, CHAT).answer.document(Buffer.from(text)), null, text)
  const response = {
    id: 'r',
    status: 'completed',
    output: [{ type: 'message', content: [{ type: 'output_text', text: 'Hi' }] }],
  }
  const spoken = told('chat', { model: 'm', messages: [] }, RESPONSES).answer.document(
    Buffer.from(JSON.stringify(response)),
  )
  const client = new OpenAI({
    apiKey: 'none',
    fetch: async () => new Response(String(spoken), { headers: { 'content-type': 'application/json' } }),
  })
  t.match(await client.chat.completions.create({ model: 'm', messages: [] }), {
    choices: [{ finish_reason: 'stop', message: { content: 'Hi' } }],
  })
})

await t.test('§ reasoning of another wire comes back exactly', async (t) => {
  for (const [wire, target, stream, end] of STREAMS) {
    const text = answered(told('messages', ASKED, target), stream + end)
    const { content } = await read(text)
      .stream({ ...ASKED, model: 'm' } as never)
      .finalMessage()
    const again = messagesOf([
      { role: 'user', content: 'q' },
      { role: 'assistant', content },
      {
        role: 'user',
        content: [
          { type: 'tool_result', tool_use_id: 'call_1' },
          { type: 'tool_result', tool_use_id: 'call_2' },
        ],
      },
    ])
    const sent = JSON.stringify(sentOf(again, target))
    t.ok(sent.includes(wire === 'chat' ? '"reasoning_content":"hm"' : '"encrypted_content":"ENC"'), wire)
  }
})

/** The events that are read. */
const READ_EVENTS = [
  ...['error', 'response.created', 'response.completed', 'response.incomplete', 'response.failed'],
  ...['response.output_item.added', 'response.output_item.done', 'response.output_text.delta'],
  ...['response.refusal.delta', 'response.function_call_arguments.delta'],
  'response.reasoning_summary_text.delta',
]
/** Events that repeat the others, say that the answer lives, or are of what nobody has asked for. */
const PASSED_EVENTS =
  /^response\.(in_progress|queued|content_part\.|(output_text|refusal|function_call_arguments|reasoning_summary_text)\.done|output_text\.annotation\.|reasoning_(text|summary_part)\.|(audio|code_interpreter_call|compaction|custom_tool_call|file_search_call|image_generation_call|mcp|shell_call|apply_patch_call|web_search_call)(_\w+)?\.)/

await t.test('§ each event that the SDKs can read has a place, and one of no use changes nothing', (t) => {
  const kinds = kindsOf(sdkTypes('openai/resources/responses/responses'), 'ResponseStreamEvent')
  const others = kinds.filter((kind) => !READ_EVENTS.includes(kind))
  t.same(
    others.filter((kind) => !PASSED_EVENTS.test(kind)),
    [],
  )
  t.same(
    READ_EVENTS.filter((kind) => !kinds.includes(kind)),
    [],
  )
  const expected = answered(told('messages', ASKED, RESPONSES), RESPONSES_STREAM + RESPONSES_END)
  const passed = others.map((kind) => event(kind, { item_id: 'x', output_index: 9, delta: 'x' })).join('')
  const stream = RESPONSES_STREAM + passed + event('response.of_next_year', {}) + RESPONSES_END
  t.equal(answered(told('messages', ASKED, RESPONSES), stream), expected)

  const messages = sdkTypes('@anthropic-ai/sdk/resources/beta/messages/messages')
  t.same(kindsOf(messages, 'BetaRawMessageStreamEvent').toSorted(), [
    ...['content_block_delta', 'content_block_start', 'content_block_stop'],
    ...['message_delta', 'message_start', 'message_stop'],
  ])
  t.same(kindsOf(messages, 'BetaRawContentBlockDelta').toSorted(), [
    ...['citations_delta', 'compaction_delta', 'input_json_delta', 'signature_delta', 'text_delta'],
    'thinking_delta',
  ])
  t.end()
})

/** Streams that a hostile server sends, in pieces; each begins as an honest one. */
const HOSTILE: Readonly<Record<string, (wire: string) => Iterable<string>>> = {
  *'a line without an end, in small pieces'() {
    for (let n = 0; n < 40_000; n += 1) yield 'data: '.repeat(6)
  },
  *'an event of lines without data, without an end'() {
    for (let n = 0; n < 4_000; n += 1) yield 'data:\n'.repeat(100)
  },
  *'more parts than an answer has'(wire) {
    for (let n = 0; n < 10_001; n += 1)
      yield wire === 'chat'
        ? chunk(calls(piece('{}', 'read', `c${n}`, n)))
        : item(n, { type: 'reasoning', summary: [], encrypted_content: 'x' })
  },
  *'calls whose ids are all one'(wire) {
    for (let n = 0; n < 200; n += 1)
      yield wire === 'chat'
        ? chunk(calls(piece('{}', 'read', 'same', n)))
        : item(n, { type: 'function_call', call_id: 'same', name: 'read', arguments: '{}' })
  },
  *'arguments without an end'(wire) {
    yield wire === 'chat'
      ? chunk(calls(piece('{"a":"', 'read', 'x')))
      : event('response.output_item.added', {
          output_index: 0,
          item: { type: 'function_call', call_id: 'x', name: 'read' },
        })
    for (let n = 0; n < 300; n += 1)
      yield wire === 'chat'
        ? chunk(calls(piece('a'.repeat(4_000))))
        : event('response.function_call_arguments.delta', { output_index: 0, delta: 'a'.repeat(4_000) })
  },
}

await t.test('§ a hostile server meets the bounds, and its answer is broken off', async (t) => {
  for (const [wire, target, stream] of STREAMS)
    for (const [name, pieces] of Object.entries(HOSTILE)) {
      const { answer } = told('messages', ASKED, target)
      answer.push(Buffer.from(stream.slice(0, stream.indexOf('\n\n') + 2)))
      let longest = 0
      for (const part of pieces(wire)) {
        const before = process.cpuUsage()
        answer.push(Buffer.from(part))
        const { user, system } = process.cpuUsage(before)
        longest = Math.max(longest, (user + system) / 1_000)
        if (answer.broken !== null) break
      }
      t.type(answer.broken, 'string', `${wire}: ${name}`)
      t.comment(`${wire}, ${name}: ${longest.toFixed(1)} ms at most`)
      t.equal(answer.isWhole, false)
    }
})

await t.test('§ a sign of life is an event of Messages, and a comment elsewhere', async (t) => {
  const input = { model: 'm', input: 'q', messages: [], stream: true }
  for (const [from, target, sign] of [
    ['messages', CHAT, 'event: ping\ndata: {"type":"ping"}\n\n'],
    ['chat', RESPONSES, ': ping\n\n'],
    ['responses', CHAT, ': ping\n\n'],
  ] as const) {
    const { messages, input: said, ...more } = input
    const body = from === 'responses' ? { ...more, input: said } : { ...more, messages }
    t.equal(told(from, body, target).answer.ping().toString(), sign, from)
  }
})
