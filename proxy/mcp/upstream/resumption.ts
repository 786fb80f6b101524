import { setTimeout } from 'node:timers/promises'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { CallAuthority } from '../../../plugins/call-authority.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import type { McpUpstreamLimits } from '../options.ts'
import type { CallerAccount, McpConnection, McpConnections } from './connections.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import type { StreamPlace, StreamResumption } from './events.ts'
import {
  drainBody,
  exchangeHttp,
  isContentEncoded,
  type McpResponseBody,
  type McpResponseHead,
  mediaTypeOf,
  type OutgoingRequest,
  USER_AGENT,
} from './exchange.ts'

interface ResumedTransport {
  readonly limits: McpUpstreamLimits
  readonly connections: Pick<McpConnections, 'of'>
}

interface StreamedRequest extends Pick<OutgoingRequest, 'hangup' | 'headers'> {
  readonly resource: McpResource
  readonly account: CallerAccount | null
  readonly permit: { readonly authority: CallAuthority }
}

/** A stream is asked for so often without a new event. */
const MAX_IDLE_RESUMES = 5
/** A stream is asked for so often in all. */
const MAX_RESUMES = 1_000
/** The time before a stream is asked for again if its server states none, and the least. ms. */
const RETRY_MS = 1_000
const MIN_RETRY_MS = 50

/** Has the rest of an answer's stream by GET (MCP 2025-11-25: resumability; SEP-1699). */
export function resumption(
  { limits, connections }: ResumedTransport,
  first: McpConnection,
  { permit: { authority }, hangup, headers, resource, account }: StreamedRequest,
  { headers: { 'mcp-session-id': opened } }: McpResponseHead,
): StreamResumption['resume'] {
  const until = performance.now() + limits.totalMs
  const session = typeof opened === 'string' && !headers.includes('mcp-session-id') ? [opened] : []
  let times = 0
  let idle = 0
  const ask = async (from: StreamPlace): Promise<McpResponseBody> => {
    times += 1
    idle = from.progressed ? 1 : idle + 1
    const pauseMs = Math.max(MIN_RETRY_MS, from.retryMs ?? RETRY_MS * idle)
    const left = until - performance.now() - pauseMs
    if (times > MAX_RESUMES || idle > MAX_IDLE_RESUMES || pauseMs > limits.answerMs || left < 1)
      throw lostAnswer('the event stream ended, and does not go on in time')
    await pause(pauseMs, hangup)
    // Credentials of an account are made for one request.
    const connection = account === null ? first : await connections.of(resource, account, 'GET')
    const {
      status,
      headers: stated,
      body,
    } = await exchangeHttp(connection, {
      method: 'GET',
      headers: [
        ...headers,
        ...session.flatMap((id) => ['mcp-session-id', id]),
        ...['accept', 'text/event-stream', 'accept-encoding', 'identity'],
        ...['user-agent', USER_AGENT, 'last-event-id', from.lastEventId],
      ],
      body: null,
      totalMs: left,
      limitMs: limits.totalMs,
      hangup,
      authority,
    })
    if (status === 200 && mediaTypeOf(stated) === 'text/event-stream' && !isContentEncoded(stated))
      return body
    drainBody(body)
    throw lostAnswer('the event stream ended, and its rest cannot be had', { status })
  }
  return async (from) => {
    for (let place = from; ; place = { ...from, progressed: false }) {
      try {
        return await ask(place)
      } catch (error) {
        if (!(error instanceof McpUpstreamError) || error.outcomeUnknown) throw error
        // Its server may be starting again.
        if (error.kind !== 'unreachable')
          throw lostAnswer('the rest of the event stream does not come', { cause: error })
      }
    }
  }
}

const lostAnswer = (message: string, options: { readonly status?: number; readonly cause?: unknown } = {}) =>
  mcpUpstreamFailure(message, { ...options, outcomeUnknown: true })

/** Waits. Rejects with the reason why nobody waits any more. */
const pause = (ms: number, { signal }: HangupSignal): Promise<void> =>
  setTimeout(ms, undefined, { signal }).catch(() => {
    throw signal.reason
  })
