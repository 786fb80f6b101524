import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import type { TranslationNotes } from '../losses.ts'
import type { ContentPart, MediaPart, ModelRequest, RequestTurn, ToolResult } from '../model/request.ts'
import type { TargetModel } from '../model/target.ts'
import { writeExtras } from '../request/extras.ts'
import { writeOpenaiMembers } from '../request/openai-members.ts'
import { resultsInOrder, resultText, textOfDocument } from '../request/results.ts'

/** Stop words that this wire takes. */
const MAX_STOP_WORDS = 4

/** Writes a Chat Completions request (openai, ChatCompletionCreateParams). Notes what it cannot tell. */
export function writeChatRequest(
  request: ModelRequest,
  target: TargetModel,
  notes: TranslationNotes,
): UnknownRecord {
  const { stream, effort, maxTokens } = request
  const told = stopWordsTold(request, target, notes)
  const schema = request.form && { name: 'answer', schema: request.form, strict: true }
  return {
    model: target.model,
    messages: writeMessages(request, target, notes),
    ...(maxTokens !== null && { [target.maxTokensMember]: maxTokens }),
    ...writeOpenaiMembers(target.takesNamedChoice ? request : withoutNames(request, notes), FORMS, notes),
    ...(told.length > 0 && { stop: told }),
    ...(effort !== null && { reasoning_effort: effort }),
    ...(schema && { response_format: { type: 'json_schema', json_schema: schema } }),
    ...writeExtras(
      request,
      {
        ...Object.fromEntries(
          (['seed', 'frequency_penalty', 'presence_penalty', 'logit_bias', 'verbosity'] as const).map(
            (name) => [name, (value: unknown) => ({ [name]: value })],
          ),
        ),
        ...(target.takesTopK && { top_k: (value) => ({ top_k: value }) }),
        json_object: () => ({ response_format: { type: 'json_object' } }),
        logprobs: (likely) => ({ logprobs: true, ...(likely !== 0 && { top_logprobs: likely }) }),
      },
      notes,
    ),
    ...(stream && { stream, ...(target.usageInStream && { stream_options: { include_usage: true } }) }),
  }
}

/**
 * Returns the stop words that the server is told of. Those that it does not take are looked for in the answer, and
 * those of which it would not say which has come, unless an operator accepts that as a loss.
 */
function stopWordsTold(
  { stopWords }: ModelRequest,
  { statesStopWord, accepted }: TargetModel,
  notes: TranslationNotes,
): readonly string[] {
  if (stopWords.length === 0) return []
  const isUnsaid = !statesStopWord && !accepted.has('stop_word')
  if (stopWords.length > MAX_STOP_WORDS || isUnsaid) {
    notes.carry('stop_words')
    return []
  }
  if (!statesStopWord) notes.lose('stop_word', 'stop_sequences')
  return stopWords
}

/** Offers a tool that must be called as the only one, to a server that does not take its name. */
function withoutNames(request: ModelRequest, notes: TranslationNotes): ModelRequest {
  const { choice, tools } = request
  if (choice?.kind !== 'tool') return request
  if (tools.length > 1) notes.carry('allowed_tools')
  return { ...request, choice: { kind: 'any' }, tools: tools.filter(({ name }) => name === choice.name) }
}

const writeTool = ({ name, description, schema, strict }: ModelRequest['tools'][number]): UnknownRecord => ({
  type: 'function',
  function: {
    name,
    ...(description !== null && { description }),
    parameters: schema,
    ...(strict !== null && { strict }),
  },
})

const FORMS = {
  tool: writeTool,
  named: (name: string): UnknownRecord => ({ type: 'function', function: { name } }),
}

function writeMessages(
  { system, turns }: ModelRequest,
  target: TargetModel,
  notes: TranslationNotes,
): readonly UnknownRecord[] {
  const written: UnknownRecord[] = system.map(({ text }) => ({ role: 'system', content: text }))
  let asked: readonly string[] = []
  for (const turn of turns) {
    if (turn.role === 'system') {
      const isInPlace = target.laterSystem === 'in_place'
      if (!isInPlace) notes.carry('system_as_user')
      written.push(...turn.parts.map(({ text }) => ({ role: isInPlace ? 'system' : 'user', content: text })))
    } else if (turn.role === 'user') {
      const results = resultsInOrder(turn.results, asked)
      written.push(...results.map((result) => writeResult(result, notes)))
      const media = results.flatMap((result) => mediaOf(result, notes))
      const content = [...media, ...turn.parts.flatMap((part) => writePart(part, notes))]
      if (content.length > 0) written.push({ role: 'user', content: plainText(content) })
    } else {
      asked = turn.parts.flatMap((part) => (part.kind === 'call' ? [part.id] : []))
      written.push(writeAssistant(turn, target))
    }
  }
  return written
}

/** One text stands by itself: some servers take no list. */
function plainText(content: readonly UnknownRecord[]): unknown {
  const [first] = content
  return content.length === 1 && first?.type === 'text' ? first.text : content
}

function writeAssistant(
  { parts }: Extract<RequestTurn, { role: 'assistant' }>,
  { reasoningMember, replaysReasoning }: TargetModel,
): UnknownRecord {
  const texts = parts.flatMap((part) => (part.kind === 'text' ? [part.text] : []))
  const calls = parts.flatMap((part) => (part.kind === 'call' ? [part] : []))
  const exact = parts.flatMap((part) => (part.kind === 'reasoning' ? part.exact : [])).filter(isObject)
  const reasoning = exact.map(({ text }) => (typeof text === 'string' ? text : '')).join('')
  const extras = new Map(
    exact.flatMap(({ calls: own }) => (Array.isArray(own) ? (own as [string, unknown][]) : [])),
  )
  const tellsReasoning =
    reasoningMember !== 'none' && (exact.length > 0 || (replaysReasoning && calls.length > 0))
  return {
    role: 'assistant',
    content: texts.length === 0 ? null : texts.join('\n\n'),
    ...(tellsReasoning && { [reasoningMember]: reasoning }),
    ...(calls.length > 0 && {
      tool_calls: calls.map(({ id, name, input }) => ({
        id,
        type: 'function',
        function: { name, arguments: JSON.stringify(input) },
        ...(extras.has(id) && { extra_content: extras.get(id) }),
      })),
    }),
  }
}

const writeResult = (result: ToolResult, notes: TranslationNotes): UnknownRecord => ({
  role: 'tool',
  tool_call_id: result.id,
  content: resultText(result, notes),
})

/** Pictures and documents of a result stand behind all results of their turn: this wire has texts there alone. */
function mediaOf({ id, parts }: ToolResult, notes: TranslationNotes): readonly UnknownRecord[] {
  const media = parts.filter((part): part is MediaPart => part.kind !== 'text' && part.text === undefined)
  if (media.length > 0) notes.carry('tool_image')
  return media.flatMap((part, index) => [
    { type: 'text', text: `[${part.kind} ${index + 1} of the result of ${id}]` },
    ...writePart(part, notes),
  ])
}

function writePart(part: ContentPart, notes: TranslationNotes): readonly UnknownRecord[] {
  if (part.kind === 'text') return [{ type: 'text', text: part.text }]
  const { kind, type, data, url, title } = part
  if (kind === 'image')
    return [{ type: 'image_url', image_url: { url: url ?? `data:${type};base64,${data}` } }]
  if (part.text !== undefined) return [{ type: 'text', text: textOfDocument(part, notes) }]
  if (data === undefined) {
    notes.lose('document_url', 'messages')
    return []
  }
  const file = { file_data: `data:${type};base64,${data}`, filename: title ?? 'document.pdf' }
  return [{ type: 'file', file }]
}
