import { type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http'
import { request as httpsRequest } from 'node:https'

/** An answer's body means nothing to us. A polite receiver's is read, so that it sees its answer taken. */
const ANSWER_MAX_BYTES = 65_536

export interface Post {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** Until the answer is whole, from the name look-up on. ms. */
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/**
 * Posts once, on a connection of its own, and resolves with the status. Rejects where none came in time, or with the
 * signal's abort. TLS is verified whatever the environment says. Redirects are not followed: a 3xx is a status as any other.
 */
export function post({ url, headers, body, timeoutMs, signal }: Post): Promise<number> {
  const options = { method: 'POST', agent: false, headers, signal } as const
  return new Promise((resolve, reject) => {
    const outgoing: ClientRequest =
      url.protocol === 'https:'
        ? httpsRequest(url, { ...options, rejectUnauthorized: true })
        : httpRequest(url, options)
    const timer = setTimeout(() => outgoing.destroy(new Error(`no answer within ${timeoutMs} ms`)), timeoutMs)
    outgoing.on('response', (answer) => {
      resolve(answer.statusCode ?? 0)
      ignore(answer)
    })
    outgoing.on('error', reject)
    outgoing.on('close', () => {
      clearTimeout(timer)
      // Of no effect after an answer or an error; a connection that was switched or dropped has given neither.
      reject(new Error('the connection was closed without an answer'))
    })
    outgoing.end(body)
  })
}

function ignore(answer: IncomingMessage): void {
  let left = ANSWER_MAX_BYTES
  answer.on('data', (piece: Buffer) => {
    left -= piece.length
    if (left < 0) answer.destroy()
  })
  answer.on('error', () => {
    // Cut short, by them or by us: its status had said everything.
  })
}
