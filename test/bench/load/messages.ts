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

/** The body of a chat call of that kind. Exactly 489 bytes. */
export function requestBody(kind: Kind): string {
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

const STREAM_HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'

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
    choices: [{ index: 0, delta: { content: `token ${index} ` }, finish_reason: null }],
    ...(withUsage && { usage: { prompt_tokens: 90, completion_tokens: 98, total_tokens: 188 } }),
  }
}

function padded(bytes: number, make: (text: string) => object): string {
  const empty = JSON.stringify(make(''))
  return JSON.stringify(make('word '.repeat(bytes).slice(0, bytes - empty.length)))
}
