import { TextDecoder } from 'node:util'
import { createParser } from 'eventsource-parser'
import { failed, McpUpstreamError } from './errors.ts'

export interface Limits {
  /** One message, in bytes. */
  readonly maxMessageBytes: number
  /** All of an answer, in bytes. */
  readonly maxTotalBytes: number
}

/**
 * The data of each event of an event stream, as it comes (WHATWG HTML, server-sent events). Events without data, and those
 * of another type than `message`, carry nothing of MCP and are passed over. Ends where the stream ends: an event that was
 * not finished by then is none.
 * Throws McpUpstreamError `too_large` past the limits, `failed` where the stream is not UTF-8.
 */
export async function* eventData(
  chunks: AsyncIterable<Buffer>,
  { maxMessageBytes, maxTotalBytes }: Limits,
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
    if (total > maxTotalBytes) throw new McpUpstreamError('too_large', 'an event stream is too long')
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
