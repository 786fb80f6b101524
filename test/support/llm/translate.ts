import type { ApiWire } from '../../../proxy/llm/dialects/dialect.ts'
import { AnswerTranslator } from '../../../proxy/llm/translate/answer.ts'
import type { LossName, TranslationFault } from '../../../proxy/llm/translate/losses.ts'
import type { TargetModel } from '../../../proxy/llm/translate/model/target.ts'
import { ToolNames } from '../../../proxy/llm/translate/names.ts'
import { translateRequest } from '../../../proxy/llm/translate/plan.ts'
import { ReasoningSeal } from '../../../proxy/llm/translate/seal.ts'

export const OPTIONS: TargetModel = {
  wire: 'messages',
  maxTokensMember: 'max_tokens',
  reasoningMember: 'reasoning_content',
  replaysReasoning: false,
  usageInStream: true,
  takesTopK: true,
  statesStopWord: true,
  takesNamedChoice: true,
  model: 'claude-opus-5',
  provider: 'anthropic',
  maxOutputTokens: 32_000,
  thinking: 'adaptive',
  isCached: false,
  cacheKey: null,
  drop: [],
  laterSystem: 'as_user',
  showReasoning: false,
  accepted: new Set(),
}

export const accepting = (losses: readonly LossName[]): TargetModel => ({
  ...OPTIONS,
  accepted: new Set(losses),
})

interface Told {
  readonly body: string
  readonly dropped: readonly string[]
  readonly carried: readonly string[]
  readonly answer: AnswerTranslator
}

const KEY = Buffer.alloc(32, 7)

/** Translates a body, which may be JSON text; its faults if it cannot be told. */
export function translated(
  from: ApiWire,
  body: unknown,
  options: TargetModel = OPTIONS,
  fits = (_bytes: number): boolean => true,
): Told | readonly TranslationFault[] {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  const result = translateRequest({ from, body: Buffer.from(text), sealKey: KEY, target: options })
  if (result.faults) return result.faults
  const { dropped, carried, tools, isStream, wantsUsage, stopWords, toldStopWords } = result
  const seal = new ReasoningSeal(KEY)
  const answer = new AnswerTranslator(
    { from: options.wire, to: from },
    {
      reading: {
        seal: (blocks) => seal.seal({ provider: options.provider, wire: options.wire, blocks }),
        stopWords: toldStopWords,
      },
      writing: {
        ...{ id: 'call', model: 'planner', now: 1_700_000_000_000, names: new ToolNames(tools) },
        ...{ isStream, includeUsage: wantsUsage, showReasoning: options.showReasoning },
      },
      stopWords,
      fits,
    },
  )
  return { body: Buffer.from(result.body).toString(), dropped, carried, answer }
}

/** The same of a body that can be told. */
export function told(...given: Parameters<typeof translated>): Told {
  const made = translated(...given)
  if ('answer' in made) return made
  throw new Error(`it cannot be told: ${JSON.stringify(made)}`)
}

export const event = (type: string, members: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

/** The events of one block of the Messages API. */
export const block = (index: number, start: object, ...deltas: readonly object[]): string =>
  event('content_block_start', { index, content_block: start }) +
  deltas.map((delta) => event('content_block_delta', { index, delta })).join('') +
  event('content_block_stop', { index })

export const begin = (usage: object = {}): string =>
  event('message_start', {
    message: { id: 'msg_1', type: 'message', role: 'assistant', content: [], model: 'claude-opus-5', usage },
  })

export const finish = (stop_reason: string, usage: object = { output_tokens: 20 }): string =>
  event('message_delta', { delta: { stop_reason, stop_sequence: null }, usage }) + event('message_stop')

export const textBlock = (index: number, ...texts: readonly string[]): string =>
  block(index, { type: 'text', text: '' }, ...texts.map((text) => ({ type: 'text_delta', text })))

export const callBlock = (index: number, id: string, name: string, ...pieces: readonly string[]): string =>
  block(
    index,
    { type: 'tool_use', id, name, input: {} },
    ...pieces.map((partial_json) => ({ type: 'input_json_delta', partial_json })),
  )

export const thinkingBlock = (index: number, thinking: string, signature: string): string =>
  block(
    index,
    { type: 'thinking', thinking: '', signature: '' },
    { type: 'thinking_delta', thinking },
    { type: 'signature_delta', signature },
  )

/** Runs a stream through, cut at these places, to its end. */
export function answered(
  { answer }: Pick<Told, 'answer'>,
  stream: string,
  cuts: readonly number[] = [],
): string {
  const bytes = Buffer.from(stream)
  const ends = [...cuts, bytes.length].toSorted((one, other) => one - other)
  const written = ends.map((end, index) =>
    answer.push(bytes.subarray(index === 0 ? 0 : ends[index - 1], end)),
  )
  return Buffer.concat([...written, answer.flush()]).toString()
}
