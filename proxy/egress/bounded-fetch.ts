import type { Agent } from 'undici'
import { collectBytes } from '../../plugins/collect.ts'
import { withDeadline } from '../../plugins/deadline.ts'

/** The limits of one answer. */
export interface AnswerBounds {
  /** The time until the last byte, from the name look-up on. ms. */
  readonly ms: number
  readonly bytes: number
}

export interface BoundedFetchInit {
  readonly method: string
  readonly headers: Readonly<Record<string, string>>
  /** A text, or parameters of a form. Anything else is not sent. */
  readonly body?: unknown
}

/** The answer is longer than its bound. */
export class AnswerTooLong extends Error {
  override readonly name = 'AnswerTooLong'
}

/** The headers of an answer that the libraries of OAuth read. */
const PASSED = ['content-type', 'cache-control', 'dpop-nonce', 'www-authenticate']

/** Asks a server by a fenced agent. Follows no redirect. Rejects past the bounds, and as the agent does. */
export function boundedFetch(
  agent: Agent,
  text: string | URL,
  { method, headers, body }: BoundedFetchInit,
  { ms, bytes: most }: AnswerBounds,
): Promise<Response> {
  const url = new URL(text)
  return withDeadline({ ms }, async (signal) => {
    const answer = await agent.request({
      origin: url.origin,
      path: url.pathname + url.search,
      method: method === 'POST' ? 'POST' : 'GET',
      headers: { ...headers, 'accept-encoding': 'identity' },
      body: body instanceof URLSearchParams || typeof body === 'string' ? String(body) : null,
      signal,
    })
    const bytes = await collectBytes(answer.body, most)
    if (bytes === null) throw new AnswerTooLong('its answer is too long')
    const { statusCode: status } = answer
    const passed = PASSED.flatMap((name): [string, string][] => {
      const value = answer.headers[name]
      return value === undefined ? [] : [[name, String(value)]]
    })
    // A response cannot be made of other statuses.
    if (status < 200) throw new Error(`it answered ${status}`)
    const isBare = [204, 205, 304].includes(status)
    return new Response(isBare ? null : Uint8Array.from(bytes), { status, headers: passed })
  })
}
