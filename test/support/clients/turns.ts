import { isObject } from '../../../db/support/json.ts'
import { type ApiWire, WIRES } from '../../../proxy/llm/dialects/registry.ts'
import { begin, callBlock, event, finish, textBlock, thinkingBlock } from '../llm/translate.ts'
import type { Answer } from '../upstream.ts'

/** One part of an answer: what the model thinks, says, or calls. */
export type TurnPart =
  | { readonly think: string }
  | { readonly say: string }
  | { readonly call: string; readonly tool: string; readonly input: object }

/** The parts of one answer. `isCut`: the connection ends before the last one does. */
export interface ScriptedTurn {
  readonly parts: readonly TurnPart[]
  readonly isCut?: boolean
}

/** A result of a tool as the provider was told it. */
export interface ToldResult {
  readonly id: unknown
  /** The result, and what stands behind it: JSON. */
  readonly text: string
}

/** A call that the provider got. */
export interface ToldTurn {
  readonly body: Readonly<Record<string, unknown>>
  readonly results: readonly ToldResult[]
}

const DOORS: Readonly<Record<ApiWire, string>> = {
  messages: '/v1/messages',
  chat: '/v1/chat/completions',
  responses: '/v1/responses',
}

/** The beginning of the end of a call. A call of a chat ends with the answer. */
const PART_ENDS: Readonly<Record<ApiWire, string>> = {
  messages: 'event: content_block_stop',
  chat: '',
  responses: 'event: response.function_call_arguments.done',
}

const PROVIDERS: Readonly<Record<ApiWire, string>> = {
  messages: 'dialect: anthropic',
  chat: 'dialect: openai, speaks: [chat], server: vllm',
  responses: 'dialect: openai, speaks: [responses]',
}

const providerLine = (wire: ApiWire, model: string, more: string): string =>
  `  - {name: ${wire}, ${PROVIDERS[wire]}, base_url: UPSTREAM/v1, api_key: sk-only-there, models: ["${model}"]${more}}\n`

const fileOf = (lines: string): Readonly<Record<string, string>> => ({
  '50-llm.yaml': `plugin: llm\nproviders:\n${lines}`,
})

/** The operator file that makes one provider of one API serve one model. */
export const onlyProvider = (wire: ApiWire, model: string, more = ''): Readonly<Record<string, string>> =>
  fileOf(providerLine(wire, model, more))

/** The operator file of a provider for each API, each with the model `on-API`. */
export const providerOfEach = (): Readonly<Record<string, string>> =>
  fileOf(WIRES.map((wire) => providerLine(wire, `on-${wire}`, '')).join(''))

/**
 * Plays a provider of one API: it gives each answer of the script once, and after the last one it says that
 * all is done. A call that offers no tools, as clients send for a title, is answered with a word. `told`: the
 * calls with tools, as they come.
 */
export function scripted(wire: ApiWire, turns: readonly ScriptedTurn[], told: ToldTurn[]): Answer {
  return (res, { url, body }) => {
    if (url !== DOORS[wire]) {
      res.statusCode = 404
      return void res.end('{}')
    }
    const asked: Readonly<Record<string, unknown>> = JSON.parse(body.toString())
    const isWork = Array.isArray(asked.tools) && asked.tools.length > 0
    const turn = isWork ? (turns[told.length] ?? DONE) : TITLE
    if (isWork) told.push({ body: asked, results: resultsIn(wire, asked) })
    res.setHeader('content-type', 'text/event-stream')
    const stream = WRITERS[wire](turn.parts)
    if (!turn.isCut) return void res.end(stream.parts + stream.end)
    const half = stream.parts.slice(0, stream.parts.lastIndexOf(PART_ENDS[wire]))
    res.write(half, () => res.destroy())
  }
}

export const FINISHED = 'All done.'
const DONE: ScriptedTurn = { parts: [{ say: FINISHED }] }
const TITLE: ScriptedTurn = { parts: [{ say: 'A title' }] }

interface WrittenTurn {
  readonly parts: string
  readonly end: string
}

const WRITERS: Readonly<Record<ApiWire, (parts: readonly TurnPart[]) => WrittenTurn>> = {
  messages: (parts) => ({
    parts:
      begin({ input_tokens: 7 }) +
      parts
        .map((part, index) => {
          if ('think' in part) return thinkingBlock(index, part.think, `signed ${part.think}`)
          return 'say' in part
            ? textBlock(index, part.say)
            : callBlock(index, part.call, part.tool, JSON.stringify(part.input))
        })
        .join(''),
    end: finish(hasCall(parts) ? 'tool_use' : 'end_turn'),
  }),
  chat: (parts) => {
    let calls = 0
    const delta = (part: TurnPart): object => {
      if ('think' in part) return { reasoning_content: part.think }
      if ('say' in part) return { content: part.say }
      const { call: id, tool: name, input } = part
      const made = {
        index: calls,
        id,
        type: 'function',
        function: { name, arguments: JSON.stringify(input) },
      }
      calls += 1
      return { tool_calls: [made] }
    }
    const deltas = [{ role: 'assistant' }, ...parts.map(delta)]
    return {
      parts: deltas.map((each) => chunk([{ index: 0, delta: each }])).join(''),
      end:
        chunk([{ index: 0, delta: {}, finish_reason: hasCall(parts) ? 'tool_calls' : 'stop' }]) +
        chunk([], { usage: { prompt_tokens: 7, completion_tokens: 3 } }) +
        'data: [DONE]\n\n',
    }
  },
  responses: (parts) => ({
    parts:
      event('response.created', { response: { id: 'resp_1', status: 'in_progress' } }) +
      parts.map(outputItem).join(''),
    end: event('response.completed', {
      response: {
        ...{ id: 'resp_1', status: 'completed' },
        usage: { input_tokens: 7, output_tokens: 3, total_tokens: 10 },
      },
    }),
  }),
}

const hasCall = (parts: readonly TurnPart[]): boolean => parts.some((part) => 'call' in part)

const chunk = (choices: readonly object[], more: object = {}): string =>
  `data: ${JSON.stringify({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'm', choices, ...more })}\n\n`

function outputItem(part: TurnPart, index: number): string {
  const added = (item: object) => event('response.output_item.added', { output_index: index, item })
  const done = (item: object) => event('response.output_item.done', { output_index: index, item })
  if ('think' in part) {
    const item = {
      id: `rs_${index}`,
      type: 'reasoning',
      summary: [],
      encrypted_content: `sealed ${part.think}`,
    }
    return added(item) + done(item)
  }
  if ('say' in part) {
    const own = { id: `msg_${index}`, type: 'message', role: 'assistant' }
    const text = { type: 'output_text', text: part.say, annotations: [] }
    const at = { item_id: own.id, output_index: index, content_index: 0 }
    return (
      added({ ...own, status: 'in_progress', content: [] }) +
      event('response.content_part.added', { ...at, part: { ...text, text: '' } }) +
      event('response.output_text.delta', { ...at, delta: part.say }) +
      event('response.output_text.done', { ...at, text: part.say }) +
      event('response.content_part.done', { ...at, part: text }) +
      done({ ...own, status: 'completed', content: [text] })
    )
  }
  const args = JSON.stringify(part.input)
  const own = { id: `fc_${index}`, type: 'function_call', call_id: part.call, name: part.tool }
  const at = { item_id: own.id, output_index: index }
  return (
    added({ ...own, status: 'in_progress', arguments: '' }) +
    event('response.function_call_arguments.delta', { ...at, delta: args }) +
    event('response.function_call_arguments.done', { ...at, arguments: args }) +
    done({ ...own, status: 'completed', arguments: args })
  )
}

/** Reads the results of tools, in their order, out of a body. */
function resultsIn(wire: ApiWire, body: Readonly<Record<string, unknown>>): readonly ToldResult[] {
  const list: unknown = wire === 'responses' ? body.input : body.messages
  const items = (Array.isArray(list) ? list : []).filter(isObject)
  if (wire === 'chat')
    return items.flatMap((item, index) =>
      item.role === 'tool' ? [{ id: item.tool_call_id, text: JSON.stringify(items.slice(index)) }] : [],
    )
  if (wire === 'responses')
    return items
      .filter(({ type }) => type === 'function_call_output' || type === 'custom_tool_call_output')
      .map((item) => ({ id: item.call_id, text: JSON.stringify(item) }))
  return items
    .flatMap(({ content }) => (Array.isArray(content) ? content : []))
    .filter(({ type }) => type === 'tool_result')
    .map((item) => ({ id: item.tool_use_id, text: JSON.stringify(item) }))
}
