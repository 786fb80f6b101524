import OpenAI from 'openai'
import t from 'tap'
import type { TargetModel } from '../../../../proxy/llm/translate/model/target.ts'
import { answered, event, OPTIONS, told, translated } from '../../../support/llm/translate.ts'

const CHAT: TargetModel = { ...OPTIONS, wire: 'chat', provider: 'local', model: 'qwen' }
const RESPONSES: TargetModel = { ...OPTIONS, wire: 'responses', provider: 'openai', model: 'gpt-5.6' }

const sentOf = (...given: Parameters<typeof told>): Record<string, unknown> => JSON.parse(told(...given).body)

const token = (text: string, logprob: number, bytes: readonly number[] | null = [...Buffer.from(text)]) => ({
  ...{ token: text, bytes, logprob },
  top_logprobs: [{ token: text.trim(), bytes: [...Buffer.from(text.trim())], logprob }],
})
const TOKENS = [token('Hé', -0.25), token('llo', -1.5)]

/** The official client of OpenAI, which gets this text for an answer. */
const openai = (text: unknown, isStream: boolean) =>
  new OpenAI({
    ...{ apiKey: 'none', maxRetries: 0 },
    fetch: async () =>
      new Response(String(text), {
        headers: { 'content-type': isStream ? 'text/event-stream' : 'application/json' },
      }),
  })

/** An answer with log probabilities in each wire of OpenAI, as a stream or whole. */
const LIKELY = {
  chat: {
    stream: () =>
      likelyChunk('', []) +
      TOKENS.map((one) => likelyChunk(one.token, [one])).join('') +
      `data: ${JSON.stringify({ choices: [{ index: 0, delta: {}, finish_reason: 'stop' }] })}\n\n`,
    whole: () => ({
      id: 'c',
      choices: [
        {
          ...{ index: 0, message: { role: 'assistant', content: 'Héllo' }, finish_reason: 'stop' },
          logprobs: { content: TOKENS },
        },
      ],
    }),
  },
  responses: {
    stream: () =>
      event('response.created', { response: { id: 'resp_1' } }) +
      event('response.output_item.added', { output_index: 0, item: likelyMessage() }) +
      TOKENS.map((one) => likelyDelta(one.token, [one])).join('') +
      event('response.output_item.done', { output_index: 0, item: likelyMessage() }) +
      event('response.completed', { response: { status: 'completed' } }),
    whole: () => ({ id: 'r', status: 'completed', output: [likelyMessage()] }),
  },
}

const likelyMessage = () => ({
  type: 'message',
  content: [{ type: 'output_text', text: 'Héllo', logprobs: TOKENS }],
})
const likelyDelta = (delta: string, logprobs: readonly object[]) =>
  event('response.output_text.delta', { output_index: 0, content_index: 0, delta, logprobs })
const likelyChunk = (content: string, tokens: readonly object[]) =>
  `data: ${JSON.stringify({ id: 'c1', choices: [{ index: 0, delta: { content }, logprobs: { content: tokens } }] })}\n\n`

await t.test('§ log probabilities pass between OpenAI’s wires, in streams and whole', async (t) => {
  const chat = { model: 'm', messages: [{ role: 'user' as const, content: 'q' }], logprobs: true }
  const include = ['message.output_text.logprobs' as const]
  const responses = { model: 'm', input: 'q', store: false, include, top_logprobs: 3 }
  t.match(sentOf('chat', { ...chat, top_logprobs: 2 }, RESPONSES), {
    ...{ top_logprobs: 2, include: ['reasoning.encrypted_content', ...include] },
  })
  t.equal(sentOf('chat', chat, RESPONSES).top_logprobs, undefined)
  t.match(sentOf('responses', responses, CHAT), { logprobs: true, top_logprobs: 3 })
  t.same(translated('responses', responses), [{ field: 'include[0]', loss: 'logprobs' }])

  const toChat = answered(told('chat', { ...chat, stream: true }, RESPONSES), LIKELY.responses.stream())
  const completion = await openai(toChat, true).chat.completions.stream(chat).finalChatCompletion()
  t.match(completion.choices, [{ message: { content: 'Héllo' }, logprobs: { content: TOKENS } }])
  const whole = told('chat', chat, RESPONSES).answer.document(
    Buffer.from(JSON.stringify(LIKELY.responses.whole())),
  )
  const { choices } = await openai(whole, false).chat.completions.create(chat)
  t.match(choices, [{ message: { content: 'Héllo' }, logprobs: { content: TOKENS } }])

  const output = [{ content: [{ text: 'Héllo', logprobs: TOKENS }] }]
  const toResponses = answered(told('responses', { ...responses, stream: true }, CHAT), LIKELY.chat.stream())
  t.match(await openai(toResponses, true).responses.stream(responses).finalResponse(), { output })
  t.match(toResponses, `"delta":"Hé","logprobs":[{"token":"Hé"`)
  const document = told('responses', responses, CHAT).answer.document(
    Buffer.from(JSON.stringify(LIKELY.chat.whole())),
  )
  t.match(await openai(document, false).responses.create(responses), { output })
})

await t.test('§ tokens whose text is not shown are not told, and none can be piled up', async (t) => {
  const asked = {
    ...{ model: 'm', messages: [], logprobs: true, stop: 'END', stream: true },
  }
  const tokens = ['a', ' E', 'ND', 'more'].map((text) => token(text, -1))
  const begun =
    event('response.created', { response: { id: 'r' } }) +
    event('response.output_item.added', { output_index: 0, item: { type: 'message' } })
  const deltas = tokens.map((one) => likelyDelta(one.token, [one]))
  const shown = answered(told('chat', asked, RESPONSES), begun + deltas.join(''))
  t.match(shown, '"token":"a"')
  for (const hidden of ['" E"', 'ND', 'more']) t.notMatch(shown, `"token":${hidden}`, hidden)
  const spoken = answered(
    told('chat', asked, RESPONSES),
    begun + deltas.slice(0, 2).join('') + event('response.completed', { response: { status: 'completed' } }),
  )
  t.match(spoken, '"token":" E"', 'what was held back for a stop word that did not come')
  const { answer } = told('chat', asked, RESPONSES)
  answer.push(Buffer.from(begun))
  for (let n = 0; n < 10_000 && answer.broken === null; n += 1)
    answer.push(Buffer.from(likelyDelta('', [token('no text', -1), {}, { token: 1 }])))
  t.match(answer.broken, /tokens/)
})
