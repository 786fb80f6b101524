import fc from 'fast-check'
import t from 'tap'
import type { ApiWire } from '../../../../proxy/llm/dialects/dialect.ts'
import { LOSS_NAMES } from '../../../../proxy/llm/translate/losses.ts'
import type { TargetModel } from '../../../../proxy/llm/translate/model/target.ts'
import { ToolNames, targetId } from '../../../../proxy/llm/translate/names.ts'
import { accepting, OPTIONS, told, translated } from '../../../support/llm/translate.ts'

const user = (text: string) => ({ role: 'user', content: [{ type: 'text', text }] })
const assistant = (...content: readonly object[]) => ({ role: 'assistant', content })
const call = (id: string, name: string, input: object = {}) => ({ type: 'tool_use', id, name, input })
const result = (id: string, ...content: readonly object[]) => ({
  type: 'tool_result',
  tool_use_id: id,
  content,
})
const text = (words: string) => ({ type: 'text', text: words })

/** Returns the body that is sent, without its model. */
function sentOf(
  from: ApiWire,
  body: object | string,
  options: TargetModel = OPTIONS,
): Record<string, unknown> {
  const { model, ...sent } = JSON.parse(told(from, body, options).body)
  if (model !== 'claude-opus-5') throw new Error(`another model: ${model}`)
  return sent
}

const chatOf = (messages: readonly object[], more: object = {}) => ({
  model: 'planner',
  messages,
  max_tokens: 100,
  ...more,
})
const responsesOf = (input: unknown, more: object = {}) => ({
  ...{ model: 'planner', input, max_output_tokens: 100, store: false },
  ...more,
})

const chatCall = (id: string, name: string, args: string) => ({
  id,
  type: 'function',
  function: { name, arguments: args },
})

await t.test('§ turns, calls and results of a chat are told in their order', async (t) => {
  const { messages, system } = sentOf(
    'chat',
    chatOf([
      { role: 'system', content: 's' },
      { role: 'developer', content: [{ type: 'text', text: 'd' }] },
      { role: 'user', content: 'q' },
      {
        role: 'assistant',
        content: null,
        tool_calls: [chatCall('a', 'f', '{"x":1}'), chatCall('b', 'f', '{}')],
      },
      { role: 'tool', tool_call_id: 'b', content: '' },
      { role: 'user', content: 'go on' },
      { role: 'tool', tool_call_id: 'a', content: 'A' },
      { role: 'assistant', content: 'done' },
    ]),
  )
  t.same(system, [text('s'), text('d')])
  t.same(messages, [
    user('q'),
    assistant(call('a', 'f', { x: 1 }), call('b', 'f')),
    { role: 'user', content: [result('a', text('A')), result('b'), text('go on')] },
    assistant(text('done')),
  ])
})

await t.test('§ items of Responses between two of the user are one turn', async (t) => {
  const { messages, system } = sentOf(
    'responses',
    responsesOf(
      [
        { role: 'developer', content: 'd' },
        {
          role: 'user',
          content: [
            { type: 'input_text', text: 'q' },
            { type: 'input_image', image_url: 'data:image/png;base64,AAAA', detail: 'low' },
          ],
        },
        {
          type: 'message',
          role: 'assistant',
          content: [{ type: 'output_text', text: 'I look', annotations: [] }],
          phase: 'commentary',
        },
        { type: 'function_call', call_id: 'a', name: 'f', arguments: '' },
        { type: 'custom_tool_call', call_id: 'b', name: 'patch', input: '*** x' },
        { type: 'custom_tool_call_output', call_id: 'b', output: 'ok' },
        {
          type: 'function_call_output',
          call_id: 'a',
          output: [
            { type: 'input_text', text: 'A' },
            { type: 'input_image', image_url: 'https://x.example/a.png' },
          ],
        },
      ],
      { instructions: 'i' },
    ),
  )
  t.same(system, [text('i'), text('d')])
  t.same(messages, [
    {
      role: 'user',
      content: [
        text('q'),
        { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'AAAA' } },
      ],
    },
    assistant(text('I look'), call('a', 'f'), call('b', 'patch', { input: '*** x' })),
    {
      role: 'user',
      content: [
        result('a', text('A'), { type: 'image', source: { type: 'url', url: 'https://x.example/a.png' } }),
        result('b', text('ok')),
      ],
    },
  ])
})

await t.test(
  '§ a later system message never becomes text of the system, nor does what a user says',
  async (t) => {
    const made = told('chat', chatOf([user('q'), { role: 'system', content: 'later' }, user('r')]))
    const { system, messages } = JSON.parse(made.body)
    t.equal(system, undefined)
    t.same(messages, [{ role: 'user', content: [text('q'), text('later'), text('r')] }])
    t.same(made.carried, ['system_as_user'])
  },
)

await t.test('§ tools, choices and forms are told', async (t) => {
  const schema = { type: 'object', properties: { a: { type: 'string' } } }
  const tool = { type: 'function', name: 'f', description: 'd', parameters: schema, strict: true }
  t.match(
    sentOf(
      'responses',
      responsesOf('q', { tools: [tool], tool_choice: 'required', parallel_tool_calls: false }),
    ),
    {
      tools: [{ name: 'f', description: 'd', input_schema: schema, strict: true }],
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
    },
  )
  const two = [tool, { ...tool, name: 'g' }]
  const allowed = { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'g' }] }
  const sent = sentOf('responses', responsesOf('q', { tools: two, tool_choice: allowed }))
  t.match(sent, { tools: [{ name: 'g' }], tool_choice: { type: 'auto' } })
  const chosen = { type: 'function', function: { name: 'f' } }
  const { type, ...named } = tool
  t.match(sentOf('chat', chatOf([], { tools: [{ type, function: named }], tool_choice: chosen })), {
    tool_choice: { type: 'tool', name: 'f' },
  })
  t.match(
    sentOf('responses', responsesOf('q', { text: { format: { type: 'json_schema', name: 'n', schema } } })),
    { output_config: { format: { type: 'json_schema', schema } } },
  )
  t.match(
    sentOf(
      'chat',
      chatOf([], { response_format: { type: 'json_schema', json_schema: { name: 'n', schema } } }),
    ),
    { output_config: { format: { type: 'json_schema', schema } } },
  )
})

await t.test('§ effort is told by its word, by a budget, or not at all', async (t) => {
  const body = (effort: string) => responsesOf('q', { reasoning: { effort }, max_output_tokens: 40_000 })
  const told = (effort: string, thinking: TargetModel['thinking']) => {
    const { thinking: config, output_config } = sentOf('responses', body(effort), { ...OPTIONS, thinking })
    return [config, output_config]
  }
  t.same(told('minimal', 'adaptive'), [{ type: 'adaptive' }, { effort: 'low' }])
  t.same(told('xhigh', 'adaptive'), [{ type: 'adaptive' }, { effort: 'xhigh' }])
  t.same(told('none', 'adaptive'), [{ type: 'disabled' }, undefined])
  t.same(told('medium', 'budget'), [{ type: 'enabled', budget_tokens: 8_192 }, undefined])
  t.same(told('high', 'none'), [undefined, undefined])
  const small = responsesOf('q', { reasoning: { effort: 'high' }, max_output_tokens: 2_000 })
  t.match(sentOf('responses', small, { ...OPTIONS, thinking: 'budget' }), {
    thinking: { budget_tokens: 1_999 },
  })
})

await t.test('§ names and ids that the target refuses are told by others, one for each', async (t) => {
  const names = new ToolNames()
  names.reserve('a__b')
  const all = [
    { name: 'x'.repeat(65), namespace: null },
    { name: `${'x'.repeat(65)}y`, namespace: null },
    { name: 'é', namespace: null },
    { name: 'è', namespace: null },
    { name: 'b', namespace: 'a' },
    { name: 'a__b', namespace: null },
    { name: 'c', namespace: 'a__b' },
    { name: 'b__c', namespace: 'a' },
    { name: '_c', namespace: 'a_' },
    { name: 'c', namespace: 'a___' },
  ]
  const targets = all.map((tool) => names.define({ ...tool, isCustom: false }))
  t.equal(new Set(targets).size, all.length)
  for (const [index, target] of targets.entries()) {
    t.match(target, /^[A-Za-z0-9_-]{1,64}$/)
    t.match(names.toolOf(target), all[index] ?? {})
  }
  fc.assert(
    fc.property(fc.string({ minLength: 1 }), fc.string({ minLength: 1 }), (one, other) => {
      const [a, b] = [targetId(one), targetId(other)]
      return /^[A-Za-z0-9_-]{1,64}$/.test(a) && (one === other) === (a === b)
    }),
  )
})

await t.test('§ numbers keep their digits and members their order', async (t) => {
  const args = '{"n":12345678901234567890,"2":1.0,"1":{"e":1E400},"b":-0}'
  const schema = '{"type":"object","properties":{"2":{"minimum":0.10},"1":{}}}'
  const body = `{"model":"m","store":false,"max_output_tokens":1e2,"input":[{"type":"function_call","call_id":"a","name":"f","arguments":${JSON.stringify(args)}},{"type":"function_call_output","call_id":"a","output":"1.0 and \\"2\\": 1e5 \\uE000"}],"tools":[{"type":"function","name":"f","parameters":${schema},"strict":false}]}`
  const sent = told('responses', body).body
  t.ok(sent.includes(`"input":${args}`), 'arguments')
  t.ok(sent.includes(`"input_schema":${schema}`), 'schemas')
  t.ok(sent.includes('"max_tokens":100'), 'a number that is read')
  t.ok(sent.includes('1.0 and \\"2\\": 1e5 \uE000'), 'a text stays as it is')
})

/** Lists the names left out of a body, or the faults for which it cannot be told. */
function lost(from: ApiWire, body: object, options = OPTIONS): readonly string[] {
  const made = translated(from, body, options)
  if ('answer' in made) return [`dropped ${made.dropped.join()}`]
  return made.map(({ field, loss }) => `${field}: ${loss}`)
}

/** Members that are not told: of which wire, and the place and name that the refusal says. */
const LOSSES: readonly (readonly [from: ApiWire, more: object, said: string])[] = [
  ['chat', { seed: 1 }, 'seed: seed'],
  ['chat', { frequency_penalty: 0.5 }, 'frequency_penalty: penalties'],
  ['chat', { logit_bias: { 1: 2 } }, 'logit_bias: logit_bias'],
  ['chat', { logprobs: true }, 'logprobs: logprobs'],
  ['chat', { temperature: 1.5 }, 'temperature: temperature'],
  ['chat', { store: true }, 'store: store'],
  ['chat', { verbosity: 'low' }, 'verbosity: verbosity'],
  ['chat', { web_search_options: {} }, 'web_search_options: hosted_tools'],
  ['chat', { response_format: { type: 'json_object' } }, 'response_format: json_object'],
  ['responses', { store: true }, 'store: store'],
  ['responses', { truncation: 'auto' }, 'truncation: truncation'],
  ['responses', { max_tool_calls: 3 }, 'max_tool_calls: max_tool_calls'],
  ['responses', { tools: [{ type: 'web_search' }] }, 'tools[0]: hosted_tools'],
  [
    'responses',
    { tools: [{ type: 'custom', name: 'p', format: { type: 'grammar', syntax: 'lark', definition: 'x' } }] },
    'tools[0].format: grammar',
  ],
  ['responses', { text: { format: { type: 'json_object' } } }, 'text.format: json_object'],
]

await t.test('§ a loss is refused by name, and left out where an operator accepts it', async (t) => {
  for (const [from, more, said] of LOSSES) {
    const body = from === 'chat' ? chatOf([user('q')], more) : responsesOf('q', more)
    const name = LOSS_NAMES.find((one) => said.endsWith(`: ${one}`)) ?? 'store'
    t.same(lost(from, body), [said], `${from} ${said}`)
    t.same(lost(from, body, accepting([name])), [`dropped ${name}`], `${from} ${said}, accepted`)
  }
})

/** Members that are never left out, whatever an operator accepts. */
const NEVER: readonly (readonly [from: ApiWire, body: object, said: string])[] = [
  ['chat', chatOf([], { n: 2 }), 'n: choices'],
  ['chat', chatOf([], { functions: [] }), 'functions: functions'],
  [
    'chat',
    chatOf([{ role: 'user', content: [{ type: 'input_audio', input_audio: {} }] }]),
    'messages[0].content[0]: audio',
  ],
  [
    'chat',
    chatOf([{ role: 'user', content: [{ type: 'file', file: { file_id: 'f' } }] }]),
    'messages[0].content[0].file.file_id: provider_state',
  ],
  ['chat', chatOf([{ role: 'user', content: 'x', spell: 1 }]), 'messages[0].spell: unknown'],
  ['chat', chatOf([{ role: 'narrator', content: 'x' }]), 'messages[0].role: unknown'],
  ['chat', chatOf([], { top_k: 1 }), 'top_k: unknown'],
  ['chat', chatOf([], { max_tokens: 0 }), 'max_tokens: max_tokens'],
  ['chat', chatOf([], { temperature: 'hot' }), 'temperature: unknown'],
  [
    'chat',
    chatOf([], { tool_choice: { type: 'function', function: { name: 'none' } } }),
    'tool_choice: tool_choice',
  ],
  [
    'chat',
    chatOf([
      { role: 'user', content: [{ type: 'image_url', image_url: { url: 'http://x.example/a.png' } }] },
    ]),
    'messages[0].content[0].image_url.url: unknown',
  ],
  ['responses', responsesOf('q', { previous_response_id: 'resp_1' }), 'previous_response_id: provider_state'],
  ['responses', responsesOf('q', { conversation: 'c' }), 'conversation: provider_state'],
  ['responses', responsesOf([{ type: 'item_reference', id: 'x' }]), 'input[0]: provider_state'],
  ['responses', responsesOf([{ type: 'mcp_call', id: 'x' }]), 'input[0]: hosted_servers'],
  ['responses', responsesOf('q', { tools: [{ type: 'mcp' }] }), 'tools[0]: hosted_servers'],
  ['responses', responsesOf('q', { tools: [{ type: 'local_shell' }] }), 'tools[0]: client_tools'],
  [
    'responses',
    responsesOf('q', {
      tools: [{ type: 'function', name: 'f', parameters: {}, allowed_callers: ['programmatic'] }],
    }),
    'tools[0].allowed_callers: callers',
  ],
  ['responses', responsesOf('q', { tools: [{ type: 'crystal_ball' }] }), 'tools[0]: unknown'],
  ['responses', responsesOf('q', { reasoning: { effort: 'colossal' } }), 'reasoning.effort: unknown'],
  ['responses', responsesOf('q', { tool_choice: { type: 'web_search' } }), 'tool_choice: tool_choice'],
  ['responses', responsesOf({}), 'input: unknown'],
  ['responses', responsesOf([null]), 'input[0]: unknown'],
]

await t.test('§ what would mean something else, or is of somebody else, is refused by name', async (t) => {
  for (const [from, body, said] of NEVER) t.same(lost(from, body), [said], `${from} ${said}`)
})

await t.test('§ whatever a body holds, it is told or refused by name', async () => {
  const value = fc.letrec((tie) => ({
    value: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom(
        null,
        true,
        0,
        1e21,
        '',
        'user',
        'assistant',
        'tool',
        'function',
        'message',
        'input_text',
        'a',
      ),
      fc.array(tie('value'), { maxLength: 3 }),
      fc.dictionary(
        fc.constantFrom(
          ...[
            'type',
            'role',
            'content',
            'name',
            'tools',
            'input',
            'messages',
            'tool_calls',
            'function',
            'id',
            'call_id',
          ],
          ...[
            'output',
            'arguments',
            'text',
            'image_url',
            'url',
            'format',
            'tool_choice',
            'stop',
            '__proto__',
            '1',
          ],
        ),
        tie('value'),
        { maxKeys: 5 },
      ),
    ),
  })).value
  const runs = process.env.TEST_SWEEP === 'full' ? 10_000 : 1_000
  for (const from of ['chat', 'responses', 'messages'] as const)
    fc.assert(
      fc.property(
        fc.dictionary(
          fc.constantFrom(
            'messages',
            'input',
            'tools',
            'tool_choice',
            'stop',
            'n',
            'text',
            'system',
            'thinking',
          ),
          value,
        ),
        (body) => {
          lost(from, body, from === 'messages' ? { ...OPTIONS, wire: 'chat' } : OPTIONS)
          return true
        },
      ),
      { numRuns: runs },
    )
})
