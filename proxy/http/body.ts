import type { IncomingMessage, ServerResponse } from 'node:http'
import { Refusal } from '../../plugins/refusal.ts'

/** Reads the whole body of a request. Refuses with `body_too_large` past `limit` bytes, `bad_request` where it breaks off. */
export function readBody(req: IncomingMessage, res: ServerResponse, limit: number): Promise<Buffer> {
  if (Number(req.headers['content-length'] ?? 0) > limit) return Promise.reject(tooLarge(limit))
  // It hung up while something before was asked: nothing of the request is ever told again.
  if (req.destroyed) return Promise.reject(brokenOff())
  // The client waits for this before it sends: only now is the body wanted.
  if (req.headers.expect !== undefined) res.writeContinue()
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = []
    let size = 0
    req.on('data', (chunk: Buffer) => {
      size += chunk.length
      if (size <= limit) chunks.push(chunk)
      else reject(tooLarge(limit))
    })
    req.on('end', () => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)))
    req.on('error', (cause) => reject(brokenOff(cause)))
    req.on('close', () => {
      if (!req.complete) reject(brokenOff())
    })
  })
}

const brokenOff = (cause?: unknown): Refusal =>
  new Refusal('bad_request', { cause, message: 'The body broke off.' })

const tooLarge = (limit: number): Refusal =>
  new Refusal('body_too_large', {
    message: `The body is larger than the ${limit} bytes this endpoint accepts.`,
  })
