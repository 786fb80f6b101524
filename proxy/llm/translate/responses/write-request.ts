import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import type { TranslationNotes } from '../losses.ts'
import type { ContentPart, ModelRequest, RequestTurn, ToolResult } from '../model/request.ts'
import type { TargetModel } from '../model/target.ts'
import { writeExtras } from '../request/extras.ts'
import { writeOpenaiMembers } from '../request/openai-members.ts'
import { resultsInOrder, resultText, textOfDocument } from '../request/results.ts'

/** The least that this wire takes. Tokens. */
const MIN_TOKENS = 16

/** Writes a Responses request (openai, ResponseCreateParams). Notes what it cannot tell. */
export function writeResponsesRequest(
  request: ModelRequest,
  target: TargetModel,
  notes: TranslationNotes,
): UnknownRecord {
  const { stream, effort, maxTokens } = request
  // They are looked for in the answer.
  if (request.stopWords.length > 0) notes.carry('stop_words')
  const format = request.form && { type: 'json_schema', name: 'answer', schema: request.form, strict: true }
  const extras = writeExtras(
    request,
    {
      verbosity: (verbosity) => ({ verbosity }),
      json_object: () => ({ format: { type: 'json_object' } }),
      // It is no part of the text's form.
      logprobs: () => ({}),
    },
    notes,
  )
  const text = { ...(format && { format }), ...extras }
  const likely = request.extras.find(({ name }) => name === 'logprobs')?.value
  const summary = target.showReasoning && { summary: 'auto' }
  const reasoning = { ...(effort !== null && { effort }), ...summary }
  return {
    model: target.model,
    input: writeItems(request, target, notes),
    ...(maxTokens !== null && { max_output_tokens: Math.max(maxTokens, MIN_TOKENS) }),
    ...writeOpenaiMembers(request, FORMS, notes),
    ...(Object.keys(reasoning).length > 0 && { reasoning }),
    ...(Object.keys(text).length > 0 && { text }),
    ...{
      store: false,
      include: [
        'reasoning.encrypted_content',
        ...(likely === undefined ? [] : ['message.output_text.logprobs']),
      ],
    },
    ...(likely !== undefined && likely !== 0 && { top_logprobs: likely }),
    ...(target.isCached && target.cacheKey !== null && { prompt_cache_key: target.cacheKey }),
    ...(stream && { stream }),
  }
}

/** The members that a request to count tokens has (openai, InputTokenCountParams). */
const COUNTED = ['model', 'input', 'tools', 'tool_choice', 'parallel_tool_calls', 'reasoning', 'text']

/** Leaves of a Responses request what its tokens are counted of. */
export const countedOf = (request: unknown): UnknownRecord =>
  Object.fromEntries(Object.entries(request ?? {}).filter(([name]) => COUNTED.includes(name)))

/** Absent, `strict` would mean true. */
const writeTool = ({ name, description, schema, strict }: ModelRequest['tools'][number]): UnknownRecord => ({
  ...{ type: 'function', name },
  ...(description !== null && { description }),
  ...{ parameters: schema, strict: strict === true },
})

const FORMS = { tool: writeTool, named: (name: string): UnknownRecord => ({ type: 'function', name }) }

const message = (role: string, content: readonly UnknownRecord[]): UnknownRecord => ({
  type: 'message',
  role,
  content,
})

function writeItems(
  { system, turns }: ModelRequest,
  target: TargetModel,
  notes: TranslationNotes,
): readonly UnknownRecord[] {
  const inputText = (text: string): UnknownRecord => ({ type: 'input_text', text })
  const written: UnknownRecord[] = system.map(({ text }) => message('system', [inputText(text)]))
  let asked: readonly string[] = []
  for (const turn of turns) {
    if (turn.role === 'system') {
      const isInPlace = target.laterSystem === 'in_place'
      if (!isInPlace) notes.carry('system_as_user')
      written.push(...turn.parts.map(({ text }) => message(isInPlace ? 'system' : 'user', [inputText(text)])))
    } else if (turn.role === 'user') {
      written.push(...resultsInOrder(turn.results, asked).map((result) => writeResult(result, notes)))
      const content = turn.parts.flatMap((part) => writePart(part, notes))
      if (content.length > 0) written.push(message('user', content))
    } else {
      asked = turn.parts.flatMap((part) => (part.kind === 'call' ? [part.id] : []))
      written.push(...turn.parts.flatMap(assistantItems))
    }
  }
  return written
}

/** Items have no ids: those of another answer are not kept there. */
function assistantItems(
  part: Extract<RequestTurn, { role: 'assistant' }>['parts'][number],
): readonly UnknownRecord[] {
  if (part.kind === 'text') return [message('assistant', [{ type: 'output_text', text: part.text }])]
  if (part.kind === 'reasoning') return part.exact.filter(isObject)
  const { id, name, input } = part
  return [{ type: 'function_call', call_id: id, name, arguments: JSON.stringify(input) }]
}

function writeResult(result: ToolResult, notes: TranslationNotes): UnknownRecord {
  const { id, parts, isError } = result
  const isText = parts.every((part) => part.kind === 'text' || part.text !== undefined)
  const mark = isError ? [{ type: 'input_text', text: '[error]' }] : []
  const output = isText
    ? resultText(result, notes)
    : [...mark, ...parts.flatMap((part) => writePart(part, notes))]
  return { type: 'function_call_output', call_id: id, output }
}

function writePart(part: ContentPart, notes: TranslationNotes): readonly UnknownRecord[] {
  if (part.kind === 'text') return [{ type: 'input_text', text: part.text }]
  const { kind, type, data, url, title } = part
  if (kind === 'image')
    return [{ type: 'input_image', detail: 'auto', image_url: url ?? `data:${type};base64,${data}` }]
  if (part.text !== undefined) return [{ type: 'input_text', text: textOfDocument(part, notes) }]
  const file =
    data === undefined
      ? { file_url: url }
      : { file_data: `data:${type};base64,${data}`, filename: title ?? 'document.pdf' }
  return [{ type: 'input_file', ...file }]
}
