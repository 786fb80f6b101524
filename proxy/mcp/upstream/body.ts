import type { Readable } from 'node:stream'
import { TextDecoder } from 'node:util'
import { createParser } from 'eventsource-parser'
import type { Limits } from '../options.ts'
import { failed, McpUpstreamError } from './errors.ts'
import type { ResponseHeaders } from './exchange.ts'

export type SizeLimits = Pick<Limits, 'maxMessageBytes' | 'maxAnswerBytes'>

/** The rest of a body that nobody wants is read up to here, so that its connection can serve again. */
const REST_BYTES = 65_536
/** How long that may take. ms. */
const REST_MS = 1_000

/** Returns the media type, lower case and without parameters; empty where there is none, or more than one. */
export function mediaTypeOf({ 'content-type': type }: ResponseHeaders): string {
  return typeof type === 'string' ? (type.split(';', 1)[0] ?? '').trim().toLowerCase() : ''
}

/** Tells whether the body is something other than its media type says (RFC 9110 §8.4). */
export function isEncoded({ 'content-encoding': encoding }: ResponseHeaders): boolean {
  return encoding !== undefined && !(typeof encoding === 'string' && encoding.toLowerCase() === 'identity')
}

/**
 * Reads the whole body. Throws McpUpstreamError `too_large` past `maxBytes`, and what the body itself fails
 * with.
 */
export async function readWhole(body: Readable, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  // Not in object mode and without an encoding: its chunks are buffers.
  for await (const chunk of body as AsyncIterable<Buffer>) {
    length += chunk.length
    // Leaving the loop destroys the body, and with it the request.
    if (length > maxBytes) throw new McpUpstreamError('too_large', 'the answer is too large')
    chunks.push(chunk)
  }
  return Buffer.concat(chunks, length)
}

/** Reads the rest of a body and forgets it; cuts off one that is long or slow. */
export function drain(body: Readable): void {
  if (body.destroyed) return
  const timer = setTimeout(() => body.destroy(), REST_MS).unref()
  body.once('close', () => clearTimeout(timer))
  let left = REST_BYTES
  body.on('data', (chunk: Buffer) => {
    left -= chunk.length
    if (left < 0) body.destroy()
  })
}

/**
 * Yields the data of each event of an event stream, as it comes (WHATWG HTML, server-sent events). Passes
 * over events without data and those of another type than `message`, which carry nothing of MCP. Ends where
 * the stream ends: an event that was not finished by then is none.
 * Throws McpUpstreamError `too_large` past the limits, `failed` where the stream is not UTF-8.
 */
export async function* eventData(
  chunks: AsyncIterable<Buffer>,
  { maxMessageBytes, maxAnswerBytes }: SizeLimits,
): AsyncGenerator<Buffer> {
  const ready: string[] = []
  let overflow = false
  const parser = createParser({
    // In characters, of which no UTF-8 text has more than bytes.
    maxBufferSize: maxMessageBytes,
    onEvent: ({ event = 'message', data }) => {
      if (event === 'message' && data !== '') ready.push(data)
    },
    onError: ({ type }) => {
      // The others are lines that a reader of event streams passes over.
      if (type === 'max-buffer-size-exceeded') overflow = true
    },
  })
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  let total = 0
  for await (const chunk of chunks) {
    total += chunk.length
    if (total > maxAnswerBytes) throw new McpUpstreamError('too_large', 'an event stream is too long')
    parser.feed(decode(decoder, chunk))
    for (const data of ready.splice(0)) yield sized(data, maxMessageBytes)
    if (overflow) throw new McpUpstreamError('too_large', 'an event is too large')
  }
}

function decode(decoder: TextDecoder, chunk: Buffer): string {
  try {
    return decoder.decode(chunk, { stream: true })
  } catch (error) {
    throw failed('an event stream is not UTF-8', { cause: error })
  }
}

function sized(data: string, maxMessageBytes: number): Buffer {
  const bytes = Buffer.from(data)
  if (bytes.length > maxMessageBytes) throw new McpUpstreamError('too_large', 'an event is too large')
  return bytes
}
