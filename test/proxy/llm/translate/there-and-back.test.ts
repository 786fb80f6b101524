import fc from 'fast-check'
import t from 'tap'
import type { ApiWire } from '../../../../proxy/llm/dialects/dialect.ts'
import type { TargetModel } from '../../../../proxy/llm/translate/model/target.ts'
import { OPTIONS, told } from '../../../support/llm/translate.ts'

// A request that is told in another wire, and that one in the first again, says the same.

const TARGETS: Readonly<Record<ApiWire, TargetModel>> = {
  messages: { ...OPTIONS, model: 'm' },
  chat: { ...OPTIONS, wire: 'chat', provider: 'local', model: 'm', laterSystem: 'in_place' },
  responses: { ...OPTIONS, wire: 'responses', provider: 'openai', model: 'm', laterSystem: 'in_place' },
}

const there = (from: ApiWire, to: ApiWire, body: object): Record<string, unknown> =>
  JSON.parse(told(from, body, TARGETS[to]).body)

/** Messages take no text of spaces alone. */
const text = fc
  .string({ minLength: 1, unit: 'binary' })
  .filter((one) => one.isWellFormed() && one.trim() !== '')
const id = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/)
const name = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/)
const input = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 2 })).map((value) => {
  const { ['__proto__']: _, ...rest } = value
  return JSON.parse(JSON.stringify(rest)) as object
})
const call = fc.record({ id, name, input, result: fc.oneof(text, fc.constant('')) })
const turn = fc.record({
  asked: text,
  said: fc.option(text, { nil: null }),
  calls: fc.uniqueArray(call, { maxLength: 3, selector: (one) => one.id }),
})
const conversation = fc
  .record({
    system: fc.option(text, { nil: null }),
    turns: fc.array(turn, { minLength: 1, maxLength: 3 }),
    names: fc.uniqueArray(name, { minLength: 1, maxLength: 3 }),
    stream: fc.boolean(),
    maxTokens: fc.integer({ min: 16, max: 100_000 }),
    choice: fc.constantFrom('auto', 'any', 'none', 'tool'),
  })
  // An id stands for one call of the conversation.
  .map((one) => ({
    ...one,
    turns: one.turns.map((each, place) => ({
      ...each,
      said: each.said ?? (each.calls.length === 0 ? 'nothing' : null),
      calls: each.calls.map((made) => ({ ...made, id: `${place}_${made.id}`.slice(0, 64) })),
    })),
  }))

type Conversation = typeof conversation extends fc.Arbitrary<infer Made> ? Made : never

function messagesOf({ system, turns, names, stream, maxTokens, choice }: Conversation): object {
  const blocks = turns.flatMap(({ asked, said, calls }, index) => [
    { role: 'user', content: [...resultsOf(turns[index - 1]), { type: 'text', text: asked }] },
    {
      role: 'assistant',
      content: [
        ...(said === null ? [] : [{ type: 'text', text: said }]),
        ...calls.map(({ result, ...made }) => ({ type: 'tool_use', ...made })),
      ],
    },
  ])
  const last = resultsOf(turns.at(-1))
  const [first = ''] = names
  return {
    ...{ model: 'm', max_tokens: maxTokens, stream },
    ...(system !== null && { system: [{ type: 'text', text: system }] }),
    messages: [
      ...blocks,
      { role: 'user', content: last.length > 0 ? last : [{ type: 'text', text: 'go on' }] },
    ],
    tools: names.map((one) => ({ name: one, description: 'd', input_schema: { type: 'object' } })),
    tool_choice: choice === 'tool' ? { type: 'tool', name: first } : { type: choice },
  }
}

const resultsOf = (one: Conversation['turns'][number] | undefined): readonly object[] =>
  (one?.calls ?? []).map((made) => ({
    type: 'tool_result',
    tool_use_id: made.id,
    content: made.result === '' ? [] : [{ type: 'text', text: made.result }],
  }))

/** Says in one way what may be said in several: a text alone, and what has a default. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain)
  if (typeof value !== 'object' || value === null) return value
  const members = Object.entries(value).filter(([, member]) => member !== false)
  const object = Object.fromEntries(
    members.map(([member, of]) => [member, member === 'input' ? of : plain(of)]),
  )
  const { type, content } = object
  if (type === 'tool_result' && (content === '' || content === undefined)) return { ...object, content: [] }
  return typeof content === 'string' ? { ...object, content: [{ type: 'text', text: content }] } : object
}

await t.test('§ a Messages request that goes by another wire and back says the same', async (t) => {
  for (const wire of ['chat', 'responses'] as const)
    fc.assert(
      fc.property(conversation, (given) => {
        const body = messagesOf(given)
        const back = there(wire, 'messages', there('messages', wire, body))
        t.strictSame(plain(back), plain(body))
        return t.passing()
      }),
      { numRuns: 100 },
    )
})

await t.test('§ a chat that goes by another wire and back says the same', async (t) => {
  for (const wire of ['messages', 'responses'] as const)
    fc.assert(
      fc.property(conversation, (given) => {
        const body = there('messages', 'chat', messagesOf(given))
        const back = there(wire, 'chat', there('chat', wire, body))
        t.strictSame(plain(back), plain(body))
        return t.passing()
      }),
      { numRuns: 100 },
    )
})
