import type { Agent } from 'undici'
import { isObject } from '../../../db/support/json.ts'
import type { TelemetryOptions, TelemetrySignal } from './options.ts'

/** The time that a collector may take for a request, with its answer. ms. */
export const SEND_MS = 10_000
/** The most of an answer that is read. Bytes. */
const MAX_ANSWER = 16_384
/** Statuses after which the same may be sent again (OTLP/HTTP, retryable response codes). */
const RETRYABLE: ReadonlySet<number> = new Set([408, 429, 502, 503, 504])

export type SendOutcome =
  | { readonly kind: 'taken'; readonly rejected: number }
  /** It may be taken later. `afterMs`: the collector's own wish; 0: none. */
  | { readonly kind: 'later'; readonly problem: string; readonly afterMs: number }
  | { readonly kind: 'refused'; readonly problem: string }

/** Sends one message, JSON text. Never rejects. */
export type SendTelemetry = (
  signal: TelemetrySignal,
  message: string | Buffer,
  stopping: AbortSignal,
) => Promise<SendOutcome>

/** Makes the sender to a collector. Redirects are not followed, and of an answer only the beginning is read. */
export function telemetrySender(
  { endpoint, headers }: Pick<TelemetryOptions, 'endpoint' | 'headers'>,
  agent: Agent,
): SendTelemetry {
  const { origin, pathname } = new URL(endpoint)
  const base = pathname.replace(/\/+$/, '')
  return async (signal, message, stopping) => {
    try {
      const {
        statusCode,
        headers: answered,
        body,
      } = await agent.request({
        origin,
        path: `${base}/v1/${signal}`,
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json', 'user-agent': 'sallyport' },
        body: message,
        signal: AbortSignal.any([stopping, AbortSignal.timeout(SEND_MS)]),
      })
      // Also the answer of a refusal: its connection can serve again, if it is short.
      const text = await beginningOf(body)
      if (statusCode >= 200 && statusCode < 300) return { kind: 'taken', rejected: rejectedIn(text) }
      const problem = `it answered ${statusCode}`
      if (!RETRYABLE.has(statusCode)) return { kind: 'refused', problem }
      return { kind: 'later', problem, afterMs: secondsIn(answered['retry-after']) * 1_000 }
    } catch (error) {
      return { kind: 'later', problem: problemOf(error), afterMs: 0 }
    }
  }
}

/** Returns a body of at most {@link MAX_ANSWER} bytes as text; empty for a longer one, which is cut off. */
async function beginningOf(body: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = []
  let size = 0
  for await (const chunk of body) {
    size += chunk.length
    // Leaving the loop destroys the rest, and its connection.
    if (size > MAX_ANSWER) return ''
    chunks.push(chunk)
  }
  return Buffer.concat(chunks).toString()
}

const REJECTED = ['rejectedSpans', 'rejectedDataPoints', 'rejectedLogRecords'] as const

/** Reads how many records a collector has not kept of those that it took (OTLP, partial success). */
function rejectedIn(text: string): number {
  try {
    const answer: unknown = JSON.parse(text)
    const partial = isObject(answer) ? answer.partialSuccess : undefined
    if (!isObject(partial)) return 0
    const counts = REJECTED.map((name) => Number(partial[name] ?? 0))
    return counts.reduce((sum, count) => sum + (Number.isSafeInteger(count) && count > 0 ? count : 0), 0)
  } catch {
    // A collector need not answer in JSON.
    return 0
  }
}

const secondsIn = (value: string | string[] | undefined): number =>
  typeof value === 'string' && /^\d{1,5}$/.test(value) ? Number(value) : 0

/** Names what went wrong by a code: a message could quote an answer. */
function problemOf(error: unknown): string {
  if (!(error instanceof Error)) return 'it cannot be reached'
  if (error.name === 'TimeoutError') return 'it did not answer in time'
  return 'code' in error && typeof error.code === 'string' ? `it failed (${error.code})` : error.message
}
