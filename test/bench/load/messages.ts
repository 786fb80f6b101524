/** The request and the answers that every point of the benchmark uses: fixed bytes, made once. */

export const PATH = '/v1/chat/completions'

/**
 * A kind of answer of the upstream: whole JSON, all events in one burst, or events with pauses between them.
 */
export type Kind = 'json' | 'burst' | 'paced'

/** The offset of the model's first letter in a request body: by it the upstream tells the kinds apart. */
export const KIND_OFFSET = '{"model":"'.length

const REQUEST_BYTES = 489
const ANSWER_BYTES = 1024
/** Events per burst answer. */
export const BURST_EVENTS = 100
/** Events per paced answer, one every {@link PACE_MS}. */
const PACED_EVENTS = 10
export const PACE_MS = 5

/** A long body: what a coding agent sends, or one picture. `bytes`: exactly so many. */
export interface LongBody {
  readonly bytes: number
  readonly of: 'agent' | 'picture'
}

/** The body of a chat call of that kind. Exactly 489 bytes, if it is not `long`. */
export function requestBody(kind: Kind, long?: LongBody): string {
  if (long) return (long.of === 'agent' ? agentBody : pictureBody)(`${kind}-1`, long.bytes)
  return padded(REQUEST_BYTES, (text) => ({
    model: `${kind}-1`,
    messages: [
      { role: 'system', content: 'You answer briefly.' },
      { role: 'user', content: text },
    ],
    temperature: 0.2,
    max_tokens: 256,
    stream: kind !== 'json',
  }))
}

/** The turns of an agent's history, and its tools. */
const TURNS = 85
const TOOLS = 20
/** Code as it stands in a history: quotes, line ends, indentation, and some letters outside ASCII. */
const CODE = `export function nameOf(user: User): string {
  // "Größe" and “naïve” stand in the table as they are; ☕ too.
  if (user.kind === "guest") return \`guest \${user.id}\`
\treturn [user.first, user.last].filter((part) => part !== '').join(" ")
}

`

/** The body of a coding agent: its instructions, tools and history. */
function agentBody(model: string, bytes: number): string {
  const tools = Array.from({ length: TOOLS }, (_, index) => ({
    type: 'function',
    function: {
      name: `tool_${index}`,
      description: 'Reads a file of the "workspace".\nThe path is absolute.',
      parameters: {
        type: 'object',
        properties: { path: { type: 'string' }, limit: { type: 'integer', minimum: 1 } },
        required: ['path'],
        additionalProperties: false,
      },
    },
  }))
  const turn = (index: number, content: string): object => {
    const id = `call_${index - (index % 2)}`
    if (index % 2 === 1) return { role: 'tool', tool_call_id: id, content }
    const call = { name: `tool_${index % TOOLS}`, arguments: '{"path":"/src/a.ts","limit":200}' }
    return { role: 'assistant', content, tool_calls: [{ id, type: 'function', function: call }] }
  }
  const make = (content: string, rest: string): object => ({
    model,
    messages: [
      { role: 'system', content: rest },
      ...Array.from({ length: TURNS - 1 }, (_, index) => turn(index, content)),
    ],
    tools,
    max_tokens: 32_000,
  })
  const size = (content: string): number => Buffer.byteLength(JSON.stringify(make(content, '')))
  const [none, one] = [size(''), size(CODE)]
  const content = CODE.repeat(Math.floor((bytes - none) / (one - none)))
  const left = bytes - size(content)
  const once = (one - none) / (TURNS - 1)
  return JSON.stringify(make(content, CODE.repeat(Math.floor(left / once)) + 'x'.repeat(left % once)))
}

const pictureBody = (model: string, bytes: number): string =>
  padded(bytes, (data) => ({
    model,
    messages: [
      {
        role: 'user',
        content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }],
      },
    ],
  })).replaceAll(' ', '/')

/** A whole HTTP request. `headers` are lines without their line ends, added to the usual ones. */
export function requestText(body: string, headers: readonly string[] = [], path = PATH): string {
  const usual = ['accept: */*', 'content-type: application/json']
  const lines = [
    `POST ${path} HTTP/1.1`,
    'host: localhost',
    'user-agent: bench',
    ...usual.filter((line) => !headers.some((other) => nameOf(other) === nameOf(line))),
    `content-length: ${Buffer.byteLength(body)}`,
    ...headers,
  ]
  return `${lines.join('\r\n')}\r\n\r\n${body}`
}

const nameOf = (line: string): string => line.slice(0, line.indexOf(':'))

/** A chat completion with its usage. Exactly 1,024 bytes. */
export const COMPLETION = padded(ANSWER_BYTES, (content) => ({
  id: 'chatcmpl-bench',
  object: 'chat.completion',
  created: 1,
  model: 'json-1',
  choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content } }],
  usage: { prompt_tokens: 90, completion_tokens: 180, total_tokens: 270 },
}))

/** An upstream's whole JSON answer, head and body. */
export const JSON_ANSWER = Buffer.from(
  `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${ANSWER_BYTES}\r\n\r\n${COMPLETION}`,
)

export const STREAM_HEAD =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'

/**
 * An upstream's streamed answer: its head, and each event in a chunk of its own; the last ends the message.
 */
export const BURST_ANSWER = Buffer.from(STREAM_HEAD + eventChunks(BURST_EVENTS).join(''))
export const PACED_ANSWER: readonly Buffer[] = eventChunks(PACED_EVENTS).map((chunk, index) =>
  Buffer.from(index === 0 ? STREAM_HEAD + chunk : chunk),
)

function eventChunks(count: number): string[] {
  return Array.from({ length: count }, (_, index) => {
    const last = index === count - 1
    const event = last ? 'data: [DONE]\n\n' : `data: ${JSON.stringify(delta(index, index === count - 2))}\n\n`
    return `${event.length.toString(16)}\r\n${event}\r\n${last ? '0\r\n\r\n' : ''}`
  })
}

function delta(index: number, withUsage: boolean): object {
  return {
    id: 'chatcmpl-bench',
    object: 'chat.completion.chunk',
    created: 1,
    model: 'burst-1',
    choices: [{ index: 0, delta: { content: `token ${index} ` }, finish_reason: withUsage ? 'stop' : null }],
    ...(withUsage && { usage: { prompt_tokens: 90, completion_tokens: 98, total_tokens: 188 } }),
  }
}

function padded(bytes: number, make: (text: string) => object): string {
  const empty = JSON.stringify(make(''))
  return JSON.stringify(make('word '.repeat(bytes).slice(0, bytes - empty.length)))
}
