import { hash } from 'node:crypto'
import type { Agent } from 'undici'
import { egressAgent } from '../../egress/agent.ts'
import type { CheckpointAnchor } from './anchor.ts'

/** The time that an anchor may take. ms. */
const TIMEOUT_MS = 10_000
/** The most of an answer that is read. Bytes. */
const ANSWER_LIMIT = 65_536

export interface AnchorAnswer {
  readonly status: number
  readonly type: string
  readonly body: Buffer
}

/** Posts to an anchor. Resolves with any answer; rejects if none came in time, or one that is too long. */
export type PostToAnchor = (
  url: string,
  type: string,
  body: string | Buffer,
  signal: AbortSignal,
) => Promise<AnchorAnswer>

/**
 * Makes the agent that anchors are reached by. They are the operator's own choice, so they may be on a
 * private network; metadata services are refused all the same. TLS is verified; redirects are not followed.
 */
export const anchorAgent = (): Agent =>
  egressAgent({ allowPrivate: true, connectMs: TIMEOUT_MS, answerMs: TIMEOUT_MS, keepAlive: false })

export const anchorPoster =
  (agent: Agent): PostToAnchor =>
  async (to, type, body, signal) => {
    const url = new URL(to)
    const answer = await agent.request({
      origin: url.origin,
      path: url.pathname + url.search,
      method: 'POST',
      headers: { 'content-type': type },
      body,
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    })
    const { 'content-type': said } = answer.headers
    return { status: answer.statusCode, type: String(said ?? ''), body: await readBounded(answer.body) }
  }

async function readBounded(body: AsyncIterable<Buffer>): Promise<Buffer> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    size += chunk.length
    if (size > ANSWER_LIMIT) throw new Error(`an answer of more than ${ANSWER_LIMIT} bytes`)
    chunks.push(chunk)
  }
  return Buffer.concat(chunks)
}

/** Names an anchor by its URL. The query may hold a token: a digest stands for it in logs, metrics and rows. */
export function webAnchorName(kind: 'url' | 'timestamp', url: string): string {
  const [place = '', ...query] = url.split('?')
  return `${kind}:${place}${query.length === 0 ? '' : `?${hash('sha256', query.join('?')).slice(0, 12)}`}`
}

/** A URL that checkpoints are posted to, as text: 2xx keeps it. */
export const urlAnchor = (url: string, post: PostToAnchor): CheckpointAnchor => ({
  name: webAnchorName('url', url),
  keep: async ({ note }, signal) => {
    const { status } = await post(url, 'text/plain; charset=utf-8', note, signal)
    if (status >= 200 && status < 300) return null
    throw new Error(`it answered ${status}`)
  },
})
