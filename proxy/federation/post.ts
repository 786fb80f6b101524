import type { Agent } from 'undici'
import { egressAgent } from '../egress/agent.ts'

/**
 * The amount of an answer's body that is read, so that the receiver sees its answer taken; it means nothing
 * to us. Bytes.
 */
const ANSWER_MAX_BYTES = 65_536

/**
 * Makes the agent that posts go out by, each on a connection of its own. The receiver is the operator's own
 * choice, so it may be on a private network; metadata services are refused all the same. `timeoutMs`: for
 * each stage of a post.
 */
export const postAgent = (timeoutMs: number): Agent =>
  egressAgent({ allowPrivate: true, connectMs: timeoutMs, answerMs: timeoutMs, keepAlive: false })

export interface FederationPost {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly body: string
  /** The time until the answer is whole, from the name look-up on. ms. */
  readonly timeoutMs: number
  readonly signal: AbortSignal
}

/** An answer of the receiver's. */
export interface PostAnswer {
  readonly status: number
  /** The receiver's clock, by its `Date` (RFC 9110 §6.6.1); null if it says none. ms since the epoch. */
  readonly date: number | null
}

/**
 * Posts once and resolves with the answer. Rejects if none came in time, or with the signal's reason. TLS is
 * verified whatever the environment says. Redirects are not followed: a 3xx is a status as any other.
 */
export async function postOnce(
  agent: Agent,
  { url, headers, body, timeoutMs, signal }: FederationPost,
): Promise<PostAnswer> {
  const late = AbortSignal.timeout(timeoutMs)
  try {
    const answer = await agent.request({
      origin: url.origin,
      path: url.pathname + url.search,
      method: 'POST',
      headers,
      body,
      signal: AbortSignal.any([signal, late]),
    })
    answer.body.dump({ limit: ANSWER_MAX_BYTES }).catch(() => {
      // Cut short, by them or by us: only its status matters.
    })
    const date = Date.parse(String(answer.headers.date))
    return { status: answer.statusCode, date: Number.isNaN(date) ? null : date }
  } catch (error) {
    if (!late.aborted || signal.aborted) throw error
    throw new Error(`no answer within ${timeoutMs} ms`, { cause: error })
  }
}
