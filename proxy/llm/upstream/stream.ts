import type { IncomingMessage } from 'node:http'
import { UpstreamError } from './error.ts'

/**
 * No answer of a model takes longer; an upstream that keeps a stream alive with nothing in it might (threat
 * 38). ms.
 */
const MAX_DURATION_MS = 3_600_000

/**
 * Destroys the stream, with an error, when nothing comes for `idleMs` while nothing is waiting to be read,
 * when it has been open for an hour, or when `signal` fires (docs/threats.md#f-15, #f-19). A reader that
 * holds the stream back stops that clock.
 */
export function guardStream(stream: IncomingMessage, idleMs: number, signal: AbortSignal): void {
  const { socket } = stream
  const idle = () => {
    // Something has come that a slow client has not taken yet: not the upstream's doing.
    if (stream.complete || stream.readableLength > 0) socket.setTimeout(idleMs)
    else stream.destroy(new UpstreamError('timeout', 'the answer stalled'))
  }
  const aborted = () => stream.destroy()
  const deadline = setTimeout(
    () => stream.destroy(new UpstreamError('timeout', 'the answer took longer than an hour')),
    MAX_DURATION_MS,
  )
  deadline.unref()
  const release = () => {
    clearTimeout(deadline)
    socket.off('timeout', idle)
    signal.removeEventListener('abort', aborted)
  }
  socket.setTimeout(idleMs)
  socket.on('timeout', idle)
  signal.addEventListener('abort', aborted, { once: true })
  stream.once('close', release)
  // The reader hears the error through `errored` or its own listener; without one here Node would keep it to
  // itself.
  stream.on('error', release)
}

/**
 * Reads the rest of an answer that nobody wants, so that its connection can be used again; a long one is cut
 * off.
 */
export function discard(stream: IncomingMessage, limit = 65_536): void {
  let seen = 0
  stream.on('data', (chunk: Buffer) => {
    seen += chunk.length
    if (seen > limit) stream.destroy()
  })
}
