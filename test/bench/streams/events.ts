import type { Socket } from 'node:net'
import { requestText } from '../load/messages.ts'

/** The events of one answer, the last one `[DONE]`. */
export const STREAM_EVENTS = 100

const HEAD = 'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'
/** The mark before the instant at which an event was sent. */
const SENT = '"sent":'
const SENT_BYTES = Buffer.from(SENT)

/** The µs of a clock that all processes of the machine share. */
export const wallUs = (): number => Math.round((performance.timeOrigin + performance.now()) * 1_000)

/** A whole request for an answer whose events come so many ms apart. */
export const streamRequest = (everyMs: number): Buffer =>
  Buffer.from(
    requestText(
      JSON.stringify({
        model: `stream-${everyMs}`,
        messages: [{ role: 'user', content: 'word '.repeat(70) }],
        stream: true,
      }),
    ),
  )

/** Sends the events of one answer, each of which says when it was sent. `model`: of the request. */
export function sendEvents(socket: Socket, model: string): void {
  const everyMs = Number(/^stream-(\d+)/.exec(model)?.[1])
  socket.write(HEAD)
  let index = 0
  const timer = setInterval(() => {
    index += 1
    const isLast = index === STREAM_EVENTS
    if (isLast || socket.destroyed) clearInterval(timer)
    const event = isLast ? 'data: [DONE]\n\n' : eventOf(index)
    socket.write(`${event.length.toString(16)}\r\n${event}\r\n${isLast ? '0\r\n\r\n' : ''}`)
  }, everyMs)
}

const eventOf = (index: number): string =>
  `data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"stream-1",` +
  `"choices":[{"index":0,"delta":{"content":"token ${index} "},"finish_reason":null}],${SENT}${wallUs()}}\n\n`

/** Calls `seen` with the instant of each event that a piece holds. Pieces hold events whole. */
export function readEvents(piece: Buffer, seen: (sentUs: number) => void): void {
  for (let at = piece.indexOf(SENT_BYTES); at >= 0; at = piece.indexOf(SENT_BYTES, at + 1))
    seen(Number.parseInt(piece.toString('latin1', at + SENT.length, at + SENT.length + 16), 10))
}
