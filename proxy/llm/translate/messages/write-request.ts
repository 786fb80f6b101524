import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { BUDGET_TOKENS } from '../effort.ts'
import type { TranslationNotes } from '../losses.ts'
import type {
  ContentPart,
  ModelRequest,
  RequestTurn,
  TextPart,
  ToolCallPart,
  ToolChoice,
  ToolResult,
} from '../model/request.ts'
import type { TargetModel } from '../model/target.ts'
import { writeExtras } from '../request/extras.ts'
import { resultsInOrder } from '../request/results.ts'

/** Writes a Messages request (@anthropic-ai/sdk, MessageCreateParams). Notes what it cannot tell. */
export function writeMessagesRequest(
  request: ModelRequest,
  options: TargetModel,
  notes: TranslationNotes,
): UnknownRecord {
  const { system, tools, stopWords, stream, topP } = request
  const maxTokens = request.maxTokens ?? options.maxOutputTokens
  if (request.maxTokens === null) notes.carry('max_tokens_set')
  if (maxTokens < 1) notes.never('max_tokens', 'max_tokens')
  const thinking = thinkingOf(request, options, maxTokens, notes)
  const temperature = temperatureOf(request, thinking, notes)
  const format = request.form && { type: 'json_schema', schema: request.form }
  const effort = thinking?.effort ?? null
  const systemBlocks = textBlocks(system, notes)
  return {
    model: options.model,
    max_tokens: maxTokens,
    ...(systemBlocks.length > 0 && { system: systemBlocks }),
    messages: writeTurns(request.turns, options.laterSystem, notes),
    ...(tools.length > 0 && { tools: tools.map(writeTool) }),
    ...choiceOf(request),
    ...(stopWords.length > 0 && { stop_sequences: stopWords }),
    ...(temperature !== null && { temperature }),
    ...(topP !== null && { top_p: topP }),
    ...(thinking && { thinking: thinking.config }),
    ...((effort ?? format) && { output_config: { ...(effort && { effort }), ...(format && { format }) } }),
    ...writeExtras(request, { top_k: (value) => ({ top_k: value }) }, notes),
    ...(options.isCached && { cache_control: { type: 'ephemeral' } }),
    ...(stream && { stream }),
  }
}

interface ToldThinking {
  readonly config: UnknownRecord
  readonly effort: string | null
}

function thinkingOf(
  request: ModelRequest,
  { thinking, showReasoning }: TargetModel,
  maxTokens: number,
  notes: TranslationNotes,
): ToldThinking | null {
  const { effort, choice, turns } = request
  if (effort === null) return null
  if (effort === 'none' && thinking !== 'none') return { config: { type: 'disabled' }, effort: null }
  if (thinking === 'none' || effort === 'none') {
    notes.hint('effort')
    return null
  }
  // Such a model may choose not to think.
  const display = showReasoning && { display: 'summarized' }
  if (thinking === 'adaptive') return { config: { type: 'adaptive', ...display }, effort }
  const isForced = choice !== null && choice.kind !== 'auto' && choice.kind !== 'none'
  if (isForced || isOpenWithoutReasoning(turns)) {
    notes.lose('thinking_off', 'reasoning')
    return { config: { type: 'disabled' }, effort: null }
  }
  const budget = Math.min(BUDGET_TOKENS[effort], maxTokens - 1)
  return budget < MIN_BUDGET
    ? { config: { type: 'disabled' }, effort: null }
    : { config: { type: 'enabled', budget_tokens: budget, ...display }, effort: null }
}

/** The least that a model of this wire can be told to think. */
const MIN_BUDGET = 1_024

/** Tells of a turn whose calls have just been answered: the provider demands the reasoning that led to them. */
function isOpenWithoutReasoning(turns: readonly RequestTurn[]): boolean {
  const last = turns.findLast((turn) => turn.role !== 'system')
  if (last?.role !== 'user' || last.results.length === 0) return false
  const asked = turns.findLast((turn) => turn.role === 'assistant')
  return asked !== undefined && asked.parts[0]?.kind !== 'reasoning'
}

function temperatureOf(
  { temperature }: ModelRequest,
  thinking: ToldThinking | null,
  notes: TranslationNotes,
): number | null {
  if (temperature === null) return null
  const thinks = thinking !== null && thinking.config.type !== 'disabled'
  if (temperature <= 1 && !(thinks && temperature !== 1)) return temperature
  notes.lose('temperature', 'temperature')
  return null
}

const writeTool = ({ name, description, schema, strict }: ModelRequest['tools'][number]): UnknownRecord => ({
  name,
  ...(description !== null && { description }),
  input_schema: schema,
  ...(strict === true && { strict }),
})

function choiceOf({ choice, parallelCalls, tools }: ModelRequest): UnknownRecord {
  if (tools.length === 0) return {}
  const one = parallelCalls === false && { disable_parallel_tool_use: true }
  if (choice === null) return one ? { tool_choice: { type: 'auto', ...one } } : {}
  return { tool_choice: { type: choice.kind, ...nameOf(choice), ...(choice.kind !== 'none' && one) } }
}

const nameOf = (choice: ToolChoice): UnknownRecord => (choice.kind === 'tool' ? { name: choice.name } : {})

type MessageBlock = UnknownRecord

function writeTurns(
  turns: readonly RequestTurn[],
  laterSystem: TargetModel['laterSystem'],
  notes: TranslationNotes,
): UnknownRecord[] {
  const written: { readonly role: 'user' | 'assistant' | 'system'; readonly content: MessageBlock[] }[] = []
  const add = (role: 'user' | 'assistant' | 'system', blocks: readonly MessageBlock[]): void => {
    const last = written.at(-1)
    if (last?.role === role) last.content.push(...blocks)
    else if (blocks.length > 0) written.push({ role, content: [...blocks] })
  }
  let asked: readonly string[] = []
  for (const turn of turns) {
    if (turn.role === 'system') {
      // The provider takes one behind a user's message alone.
      const isInPlace = laterSystem === 'in_place' && written.at(-1)?.role === 'user'
      if (!isInPlace) notes.carry('system_as_user')
      add(isInPlace ? 'system' : 'user', textBlocks(turn.parts, notes))
    } else if (turn.role === 'user') {
      const results = resultsInOrder(turn.results, asked).map((result) => writeResult(result, notes))
      add('user', [...results, ...contentBlocks(turn.parts, notes)])
    } else {
      asked = turn.parts.flatMap((part) => (part.kind === 'call' ? [part.id] : []))
      add(
        'assistant',
        turn.parts.flatMap((part) => assistantBlocks(part, notes)),
      )
    }
  }
  return written.map(({ role, content }) => ({ role, content: content.toSorted(resultsFirst) }))
}

const isResult = ({ type }: MessageBlock): number => Number(type === 'tool_result')

/** Results stand first in their message, whatever came between. */
const resultsFirst = (one: MessageBlock, other: MessageBlock): number => isResult(other) - isResult(one)

function assistantBlocks(
  part: Extract<RequestTurn, { role: 'assistant' }>['parts'][number],
  notes: TranslationNotes,
): readonly MessageBlock[] {
  if (part.kind === 'text') return textBlocks([part], notes)
  if (part.kind === 'call') return [writeCall(part)]
  return part.exact.filter(isObject)
}

const writeCall = ({ id, name, input }: ToolCallPart): MessageBlock => ({ type: 'tool_use', id, name, input })

const writeResult = ({ id, parts, isError }: ToolResult, notes: TranslationNotes): MessageBlock => ({
  type: 'tool_result',
  tool_use_id: id,
  content: contentBlocks(
    parts.filter((part) => part.kind !== 'text' || part.text !== ''),
    notes,
  ),
  ...(isError && { is_error: true }),
})

/** An empty text is refused by the provider, and says nothing. */
function textBlocks(parts: readonly TextPart[], notes: TranslationNotes): MessageBlock[] {
  const told = parts.filter(({ text }) => text.trim() !== '')
  if (told.length < parts.length) notes.hint('empty_text')
  return told.map(({ text }) => ({ type: 'text', text }))
}

const contentBlocks = (parts: readonly ContentPart[], notes: TranslationNotes): MessageBlock[] =>
  parts.flatMap((part) => (part.kind === 'text' ? textBlocks([part], notes) : [mediaBlock(part)]))

function mediaBlock({ kind, type, data, url, text, title }: Exclude<ContentPart, TextPart>): MessageBlock {
  const source =
    data !== undefined
      ? { type: 'base64', media_type: type, data }
      : url !== undefined
        ? { type: 'url', url }
        : { type: 'text', media_type: 'text/plain', data: text }
  return { type: kind, source, ...(title !== null && { title }) }
}
