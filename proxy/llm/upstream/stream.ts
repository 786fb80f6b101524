import type { IncomingMessage } from 'node:http'

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
