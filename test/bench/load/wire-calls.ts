// The calls of callers whose API is another than the provider's, and the answers of that provider: fixed bytes.
import { BURST_EVENTS, type Kind, type LongBody, PATH, requestBody, STREAM_HEAD } from './messages.ts'

/** The API of a caller, and that of the provider which is asked. */
export interface CallWires {
  readonly from: 'chat' | 'messages' | 'responses'
  readonly to: 'chat' | 'messages'
}

const PATHS = { chat: PATH, messages: '/v1/messages', responses: '/v1/responses' } as const

/** The path by which the upstream is asked in the Messages API. */
export const MESSAGES_PATH = PATHS.messages

/** Makes a call: short, or as long as a coding agent's, with the same content in each API. */
export function wireCall({ from, to }: CallWires, kind: Kind, long?: LongBody) {
  const chat: ChatBody = JSON.parse(requestBody(kind, long))
  const model = to === 'messages' ? 'claude-bench' : chat.model
  // The model stands first: by it the upstream tells kinds apart.
  const body = { model, ...BODIES[from]({ ...chat, model }), stream: kind !== 'json' }
  return { path: PATHS[from], headers: [], body: JSON.stringify(body) }
}

interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool'
  readonly content: string
  readonly tool_call_id?: string
  readonly tool_calls?: readonly {
    readonly id: string
    readonly function: { readonly name: string; readonly arguments: string }
  }[]
}

interface ChatBody {
  readonly model: string
  readonly messages: readonly ChatMessage[]
  readonly max_tokens?: number
  readonly tools?: readonly {
    readonly function: { readonly name: string; readonly description: string; readonly parameters: object }
  }[]
}

const BODIES: Readonly<Record<CallWires['from'], (chat: ChatBody) => object>> = {
  chat: (chat) => chat,
  messages: ({ messages, tools, max_tokens }) => ({
    system: messages.flatMap(({ role, content }) =>
      role === 'system' ? [{ type: 'text', text: content, cache_control: { type: 'ephemeral' } }] : [],
    ),
    messages: [
      { role: 'user', content: 'Look into it.' },
      ...messages.filter(({ role }) => role !== 'system').map(messageOf),
    ],
    ...{ max_tokens },
    ...(tools && {
      tools: tools.map(({ function: { name, description, parameters } }) => ({
        ...{ name, description, input_schema: parameters },
      })),
    }),
  }),
  responses: ({ messages, max_tokens }) => ({
    input: messages.map(({ role, content }) => ({ role, content })),
    ...{ max_output_tokens: max_tokens, store: false },
  }),
}

function messageOf({ role, content, tool_call_id: id, tool_calls: calls = [] }: ChatMessage): object {
  if (role === 'tool') return { role: 'user', content: [{ type: 'tool_result', tool_use_id: id, content }] }
  const used = calls.map((call) => ({
    ...{ type: 'tool_use', id: call.id, name: call.function.name },
    input: JSON.parse(call.function.arguments),
  }))
  return { role, content: [{ type: 'text', text: content }, ...used] }
}

const event = (type: string, members: object = {}): string =>
  `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

/** The events of an answer of the Messages API: as many as a burst of a chat has. */
const MESSAGES_EVENTS: readonly string[] = [
  event('message_start', {
    message: {
      ...{ id: 'msg_bench', type: 'message', role: 'assistant', model: 'claude-bench', content: [] },
      usage: { input_tokens: 90, output_tokens: 1 },
    },
  }),
  event('content_block_start', { index: 0, content_block: { type: 'text', text: '' } }),
  ...Array.from({ length: BURST_EVENTS - 5 }, (_, index) =>
    event('content_block_delta', { index: 0, delta: { type: 'text_delta', text: `token ${index} ` } }),
  ),
  event('content_block_stop', { index: 0 }),
  event('message_delta', { delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 98 } }),
  event('message_stop'),
]

export const MESSAGES_STREAM = MESSAGES_EVENTS.join('')

const chunks = MESSAGES_EVENTS.map((text) => `${text.length.toString(16)}\r\n${text}\r\n`)

/** The upstream's answer to a call in the Messages API: its head, and each event in a chunk of its own. */
export const MESSAGES_ANSWER = Buffer.from(`${STREAM_HEAD}${chunks.join('')}0\r\n\r\n`)
