import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import { stepCountIs, streamText, tool } from 'ai'
import t from 'tap'
import { z } from 'zod'
import type { ApiWire } from '../../proxy/llm/dialects/dialect.ts'
import { through } from '../support/clients/through.ts'
import {
  FINISHED,
  providerOfEach,
  type ScriptedTurn,
  scripted,
  type ToldTurn,
} from '../support/clients/turns.ts'

// One gateway for all.
const way = await through(t, providerOfEach())

const call = (id: string, file: string) => ({ call: id, tool: 'read', input: { file } })
const TURNS: readonly ScriptedTurn[] = [
  { parts: [{ think: 'hm' }, { say: 'I look.' }, call('call_0', 'a')] },
  { parts: [call('call_1', 'b'), call('call_2', 'none')] },
]

const read = tool({
  inputSchema: z.object({ file: z.string() }),
  execute: async ({ file }) => {
    if (file === 'none') throw new Error('no such file')
    return `what ${file} says`
  },
})

/** Lets the AI SDK work in steps by one API on a model of another. */
async function worked(api: ApiWire, wire: ApiWire, isStored = false) {
  const name = `on-${wire}`
  const told: ToldTurn[] = []
  way.gateway.upstream.answer = scripted(wire, TURNS, told)
  const settings = { baseURL: `${way.gateway.url}/v1`, apiKey: 'unused', fetch: way.fetch }
  const models = {
    messages: () => createAnthropic(settings)(name),
    chat: () => createOpenAI(settings).chat(name),
    responses: () => createOpenAI(settings)(name),
  }
  const errors: unknown[] = []
  const { text } = streamText({
    ...{ model: models[api](), prompt: 'hi', tools: { read }, stopWhen: stepCountIs(6) },
    onError: ({ error }) => void errors.push(error),
    ...(!isStored && { providerOptions: { openai: { store: false } } }),
  })
  return { text: await text, told, errors }
}

const THOUGHT: Readonly<Record<ApiWire, RegExp>> = {
  messages: /"signature":"signed hm"/,
  responses: /"encrypted_content":"sealed hm"/,
  chat: /"reasoning_content":"hm"/,
}

for (const [api, wire] of [
  ['chat', 'messages'],
  ['chat', 'responses'],
  ['responses', 'messages'],
  ['responses', 'chat'],
  ['messages', 'responses'],
  ['messages', 'chat'],
] as const)
  await t.test(`§4 the AI SDK works in steps by ${api} on a model of ${wire}`, async (t) => {
    const { text, told, errors } = await worked(api, wire)
    t.same(errors, [])
    t.equal(text, FINISHED)
    const { results = [], body } = told.at(-1) ?? {}
    t.same(
      results.map(({ id }) => id),
      ['call_0', 'call_1', 'call_2'],
    )
    t.match(results[1]?.text, 'what b says')
    t.match(results[2]?.text, 'no such file')
    // Chat Completions has no place for it.
    const comesBack = THOUGHT[wire].test(JSON.stringify(body))
    t.equal(comesBack, api !== 'chat', 'what was thought')
  })

await t.test(
  '§4 a step that is stored at a provider is refused, and the sentence says what to do',
  async (t) => {
    const { told, errors } = await worked('responses', 'messages', true)
    t.equal(told.length, 1, 'the second step is not told')
    t.match(errors, [
      { message: /^on-messages cannot be told of input\[1\] \(provider_state\)\. .*store: false/ },
    ])
  },
)
