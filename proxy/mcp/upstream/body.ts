import type { Readable } from 'node:stream'
import { McpUpstreamError } from './errors.ts'
import type { ResponseHeaders } from './exchange.ts'

/** What nobody wants any more is read up to here, and for so long, so that its connection can serve again. */
const REST_BYTES = 65_536
const REST_MS = 1_000

/** The media type, lower case and without parameters; empty where there is none, or more than one. */
export function mediaTypeOf({ 'content-type': type }: ResponseHeaders): string {
  return typeof type === 'string' ? (type.split(';', 1)[0] ?? '').trim().toLowerCase() : ''
}

/** Whether the body is something other than what its media type says (RFC 9110 §8.4). */
export function isEncoded({ 'content-encoding': encoding }: ResponseHeaders): boolean {
  return encoding !== undefined && !(typeof encoding === 'string' && encoding.toLowerCase() === 'identity')
}

/** The whole body. Throws McpUpstreamError `too_large` past `maxBytes`, and what the body itself fails with. */
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

/** Reads the rest and forgets it; one that is long or slow is cut off. */
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
