import t from 'tap'
import { answerTap } from '../../../../proxy/llm/dialects/answer-tap.ts'
import { STATED_NAMES, statedIds } from '../../../../proxy/llm/state/stated-ids.ts'
import { endpointAt } from '../../../support/llm/facts.ts'

/** The ids that an answer states as it passes, in pieces. */
function stated(
  path: string,
  type: string,
  answer: string,
  asked: readonly string[] = [],
): readonly string[] {
  const { wire, names } = endpointAt(path)
  if (wire === undefined) throw new Error(`no API at ${path}`)
  const ids = new Set<string>()
  const stores = !asked.includes('not stored')
  const hear = (root: Readonly<Record<string, unknown>>): void => {
    for (const id of statedIds(STATED_NAMES[wire], root, { has: (name) => asked.includes(name), stores }))
      ids.add(id)
  }
  const tap = answerTap(names, type, undefined, null, hear)
  const bytes = Buffer.from(answer)
  for (let at = 0; at < bytes.length; at += 7_001) tap.observe(bytes.subarray(at, at + 7_001))
  tap.isWhole(true)
  return [...ids].toSorted()
}

const JSON_TYPE = 'application/json'
const EVENTS = 'text/event-stream'
const RESPONSES = '/v1/responses'
const events = (...all: readonly object[]) => all.map((one) => `data: ${JSON.stringify(one)}\n\n`).join('')

const annotations = [
  { type: 'container_file_citation', container_id: 'cntr_2', file_id: 'cfile_1' },
  { type: 'file_citation', file_id: 'file_1' },
]
const response = (text: string) => ({
  id: 'resp_1',
  object: 'response',
  conversation: { id: 'conv_1' },
  previous_response_id: 'resp_0',
  output: [
    { type: 'reasoning', id: 'rs_1', summary: [] },
    { type: 'code_interpreter_call', id: 'ci_1', container_id: 'cntr_1', outputs: null },
    { type: 'function_call', id: 'fc_1', arguments: '{"file_id":"file_x"}' },
    { type: 'tool_search_call', id: 'ts_1', arguments: { file_id: 'file_x', container_id: 'cntr_x' } },
    { type: 'message', id: 'msg_1', content: [{ type: 'output_text', text, annotations }] },
  ],
})
const ITEMS = ['fc_1', 'msg_1', 'ts_1']
const KEPT = [
  'cfile_1',
  'ci_1',
  'cntr_1',
  'cntr_2',
  'conv_1',
  'file_1',
  'resp_1',
  'rs_1',
  ...ITEMS,
].toSorted()

for (const [length, text] of [
  ['short', 'x'],
  ['long', 'x'.repeat(100_000)],
] as const) {
  await t.test(
    `H11 a ${length} answer states what the provider has written, and not what the model has`,
    (t) => {
      const whole = response(text)
      t.same(stated(RESPONSES, JSON_TYPE, JSON.stringify(whole)), KEPT, 'whole')
      const created = { type: 'response.created', response: { ...whole, output: [] } }
      const completed = { type: 'response.completed', response: whole }
      t.same(stated(RESPONSES, EVENTS, events(created, completed)), KEPT, 'streamed')
      const items = whole.output.map((item) => ({ type: 'response.output_item.done', item }))
      t.same(stated(RESPONSES, EVENTS, events(created, ...items)), KEPT, 'cut off before its end')
      t.end()
    },
  )
}

await t.test('§ what is not stored is not remembered', (t) => {
  const sealed = { type: 'reasoning', id: 'rs_2', summary: [], encrypted_content: 'gAAA' }
  const answer = { ...response('x'), store: false, conversation: null, output: [sealed] }
  t.same(stated(RESPONSES, JSON_TYPE, JSON.stringify(answer)), [])
  const items = { ...response('x'), store: false, conversation: null }
  t.same(stated(RESPONSES, JSON_TYPE, JSON.stringify(items)), [
    'cfile_1',
    'ci_1',
    'cntr_1',
    'cntr_2',
    'file_1',
    'rs_1',
  ])
  const [item] = response('x').output.slice(-1)
  const done = events({ type: 'response.output_item.done', item: { ...item, content: [] } })
  t.same(stated(RESPONSES, EVENTS, done), ['msg_1'])
  t.same(stated(RESPONSES, EVENTS, done, ['not stored']), [])
  const many = {
    object: 'response',
    output: Array.from({ length: 900 }, (_, place) => ({ type: 'x', id: `i_${place}` })),
  }
  t.equal(stated(RESPONSES, JSON_TYPE, JSON.stringify(many)).length, 200, 'nor more than an answer has')
  t.same(stated(RESPONSES, JSON_TYPE, JSON.stringify({ id: 'x'.repeat(257), output: [] })), [])
  t.end()
})

await t.test('§ audio of a chat, and containers, files and threads of messages', (t) => {
  const chat = '/v1/chat/completions'
  const audio = { id: 'audio_1', data: 'AAAA' }
  t.same(stated(chat, JSON_TYPE, JSON.stringify({ id: 'c', choices: [{ message: { audio } }] })), ['audio_1'])
  const first = { id: 'c', model: 'm', choices: [{ delta: { role: 'assistant' } }] }
  t.same(stated(chat, EVENTS, events(first, { choices: [{ delta: { audio } }] })), ['audio_1'])

  const result = { type: 'bash_code_execution_output', file_id: 'file_1' }
  const content = [
    {
      type: 'tool_use',
      id: 'toolu_1',
      input: { file_id: 'file_x', content: { content: [{ file_id: 'file_x' }] } },
    },
    { type: 'bash_code_execution_tool_result', content: { content: [result] } },
    { type: 'container_upload', file_id: 'file_2' },
  ]
  const message = { id: 'msg_1', type: 'message', container: { id: 'cntr_1' }, content }
  const messages = (asked: readonly string[]) =>
    stated('/v1/messages', JSON_TYPE, JSON.stringify(message), asked)
  t.same(messages([]), ['cntr_1', 'file_1', 'file_2'])
  t.same(messages(['thread']), ['cntr_1', 'file_1', 'file_2', 'msg_1'])
  const streamed = events(
    { type: 'message_start', message: { ...message, container: null, content: [], model: 'm', usage: {} } },
    { type: 'content_block_start', index: 0, content_block: content[1] },
    { type: 'message_delta', delta: { stop_reason: 'end_turn', container: { id: 'cntr_1' } }, usage: {} },
  )
  t.same(stated('/v1/messages', EVENTS, streamed, ['diagnostics']), ['cntr_1', 'file_1', 'msg_1'])
  t.end()
})
