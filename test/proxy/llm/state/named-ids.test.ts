import t from 'tap'
import type { ApiWire } from '../../../../proxy/llm/dialects/registry.ts'
import { MAX_NAMED_IDS, namedIdsSteps } from '../../../../proxy/llm/state/named-ids.ts'

const stepsOf = (body: unknown, wire: ApiWire = 'responses') => {
  const bytes = Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))
  const work = namedIdsSteps(bytes, wire)
  for (let steps = 1; ; steps += 1) {
    const step = work.next()
    if (step.done) return { steps, named: step.value.map(({ at, id }) => `${at} = ${id}`) }
  }
}
const named = (body: unknown, wire?: ApiWire) => stepsOf(body, wire).named

await t.test('§ an id is found wherever it stands, with its place', (t) => {
  const file = { type: 'input_file', file_id: 'file_1' }
  const tools = [
    { type: 'file_search', vector_store_ids: ['vs_1', 'vs_2'] },
    { type: 'code_interpreter', container: { type: 'auto', file_ids: ['file_2'] } },
    { type: 'image_generation', input_image_mask: { file_id: 'file_3' } },
    { type: 'mcp', tunnel_id: 'tunnel_1', headers: { file_id: 'x' } },
    { type: 'shell', environment: { type: 'container_reference', container_id: 'cntr_1' } },
    { type: 'shell', environment: { skills: [{ type: 'skill_reference', skill_id: 'skill_1' }] } },
  ]
  t.same(named({ tools, prompt_cache_options: { comparison_response_id: 'resp_1' } }), [
    'tools[0].vector_store_ids[0] = vs_1',
    'tools[0].vector_store_ids[1] = vs_2',
    'tools[1].container.file_ids[0] = file_2',
    'tools[2].input_image_mask.file_id = file_3',
    'tools[3].tunnel_id = tunnel_1',
    'tools[4].environment.container_id = cntr_1',
    'tools[5].environment.skills[0].skill_id = skill_1',
    'prompt_cache_options.comparison_response_id = resp_1',
  ])
  const prompt = { id: 'pmpt_1', variables: { file_id: 'a word', container: 'another', brief: file } }
  t.same(named({ prompt }), ['prompt.id = pmpt_1', 'prompt.variables.brief.file_id = file_1'])
  const output = { type: 'function_call_output', call_id: 'c', output: [file] }
  t.same(named({ input: [output], somewhere: [[{ new: file }]] }), [
    'input[0].output[0].file_id = file_1',
    'somewhere[0][0].new.file_id = file_1',
  ])
  const skills = [
    { type: 'anthropic', skill_id: 'pptx' },
    { skill_id: 'skill_2', type: 'custom' },
  ]
  t.same(named({ container: { skills } }, 'messages'), ['container.skills[1].skill_id = skill_2'])
  t.same(named({ audio: { voice: 'alloy', format: 'wav' } }, 'chat'), [])
  t.same(named({ audio: { voice: { id: 'voice_1' } } }, 'chat'), ['audio.voice.id = voice_1'])
  t.end()
})

await t.test('§ an item without its content is named by its id, and one with it is not', (t) => {
  const items = [
    { id: 'msg_1' },
    { id: 'rs_1', type: 'reasoning', summary: [] },
    { id: 'rs_2', type: 'reasoning', summary: [], encrypted_content: null },
    { id: 'ig_1', type: 'image_generation_call', result: '' },
    { id: 'ci_1', type: 'code_interpreter_call', outputs: [] },
    { id: 'ws_1', type: 'web_search_call', action: { type: 'search' } },
    { id: 'x_1', type: 'of_tomorrow', content: 'x' },
  ]
  t.same(
    named({ input: items }),
    items.map(({ id }, place) => `input[${place}].id = ${id}`),
  )
  const whole = [
    { id: 'msg_2', role: 'assistant', content: [] },
    { id: 'rs_3', type: 'reasoning', encrypted_content: 'gAAA' },
    { id: 'ig_2', type: 'image_generation_call', result: 'iVBO' },
    { id: 'fs_2', type: 'file_search_call', results: [{ file_id: 'file_1', text: 'x' }] },
    { id: 'fc_2', type: 'function_call', arguments: '{}' },
    { id: 'ts_2', type: 'tool_search_call', arguments: { file_id: 'x' } },
  ]
  t.same(named({ input: whole, tools: [{ id: 'no item' }], metadata: { list: [{ id: 'no item' }] } }), [])
  t.end()
})

await t.test('H11 two readers who take two things for it both find it', (t) => {
  t.same(named('{"input":[{"id":"a","id":"b"}]}'), ['input[0].id = a', 'input[0].id = b'])
  t.same(named('{"tools":[{"file_id":"a","file_id":"b","file_\\u0069d":"\\u0063"}]}'), [
    'tools[0].file_id = a',
    'tools[0].file_id = b',
    String.raw`tools[0].file_\u0069d = c`,
  ])
  t.same(named('{"input":[{"type":"item_reference","type":"message","id":"a","content":"x"}]}'), [
    'input[0].id = a',
  ])
  t.same(named('{"input":[{"type":"reasoning","encrypted_content":"","encrypted_content":"x","id":"a"}]}'), [
    'input[0].id = a',
  ])
  t.same(named('{"file_id":12,"container_id":null}'), ['file_id = 12'])
  t.match(named({ file_id: `file_${'x'.repeat(5_000)}` })[0], /^file_id = file_x{1019}$/)
  t.end()
})

await t.test('§8 the longest body is read in short steps, and no more ids than are asked for', (t) => {
  const long = stepsOf({ input: 'é'.repeat(8_000_000), previous_response_id: 'resp_1' })
  t.same(long.named, ['previous_response_id = resp_1'])
  t.ok(long.steps > 50)
  const wide = stepsOf({ input: Array.from({ length: 90_000 }, () => ({})), previous_response_id: 'resp_1' })
  t.same(wide.named, ['previous_response_id = resp_1'])
  t.ok(wide.steps > 300)
  const many = stepsOf({ file_ids: Array.from({ length: 90_000 }, (_, place) => `file_${place}`) })
  const name = 'n'.repeat(16_000)
  const deep = `${`{"${name}":`.repeat(50)}{"file_ids":["x"]}${'}'.repeat(50)}`
  t.ok((named(deep)[0]?.length ?? 0) < 4_000, 'a place is short, however long the names are')
  t.ok(many.named.length > MAX_NAMED_IDS && many.named.length < 2 * MAX_NAMED_IDS)
  t.end()
})
