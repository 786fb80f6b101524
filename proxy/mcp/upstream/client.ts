import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Granted, OperatorPermit } from '../../../plugins/permit.ts'
import type { Resolve } from '../../egress/agent.ts'
import type { UpstreamAnswer } from './answer.ts'
import type { UpstreamCall } from './call.ts'
import { openConnections } from './connections.ts'
import { failed } from './errors.ts'
import { callLegacy } from './legacy.ts'
import { callModern } from './modern.ts'
import { type Reading, readUpstream } from './reading.ts'
import { notify, type Transport } from './request.ts'
import { endSession, openSession, sessionHeaders } from './session.ts'
import { type Owner, UpstreamSessions } from './sessions.ts'

export type { UpstreamAnswer } from './answer.ts'
export type { UpstreamCall } from './call.ts'
export type { Reading } from './reading.ts'
export type { Owner } from './sessions.ts'

/** Idle sessions and connections are looked for so often. ms. */
const SWEEP_MS = 60_000

export interface UpstreamOptions {
  /** Whether upstreams may be at loopback or private addresses. */
  readonly allowPrivate: boolean
  /** Until the connection stands. ms. */
  readonly connectMs: number
  /** From then until the head of the answer, and between two pieces of it. ms. */
  readonly answerMs: number
  /** For one request and its answer. ms. */
  readonly totalMs: number
  readonly maxMessageBytes: number
  /** All of one answer, and all pages of a list of tools. */
  readonly maxTotalBytes: number
  readonly clock: () => number
  /** Reads `env:NAME` or `file:/path`. */
  readonly secret: (reference: string) => Promise<string>
  /** Default: the system's resolver. */
  readonly resolve?: Resolve
}

/** The MCP servers behind this gateway. Whatever fails because of one is a McpUpstreamError. */
export interface McpUpstream {
  /** Sends one request and resolves with the head of its answer. Rejects with McpUpstreamError, or the signal's reason. */
  readonly call: (call: UpstreamCall) => Promise<UpstreamAnswer>
  /** Hands a JSON-RPC response to the session whose server asked for it. Rejects where there is no such session. */
  readonly respond: (permit: Granted, resource: McpResource, owner: Owner, response: string) => Promise<void>
  /** Ends what the caller's session at our door has opened. Best effort. */
  readonly endSession: (principalId: string, sessionId: string) => Promise<void>
  /** Finds out which era the server is of, what it says of itself, and its tools. Writes nothing. */
  readonly read: (permit: OperatorPermit, resource: McpResource, signal: AbortSignal) => Promise<Reading>
  /** Ends the sessions, best effort, and then every connection. */
  readonly close: () => Promise<void>
}

/**
 * Speaks to upstream MCP servers over Streamable HTTP, of either era. Connections go to vetted addresses only, TLS is
 * verified, redirects and cookies are not followed, and nothing of a caller's own headers is ever sent.
 * Does NOT decide who may call what, nor look into params and results.
 */
export function openMcpUpstream(options: UpstreamOptions): McpUpstream {
  const transport = wireOf(options)
  const sessions = new UpstreamSessions({
    open: async (...given) => (await openSession(transport, ...given)).session,
    end: (resource, session) => endSession(transport, resource, session),
    clock: options.clock,
  })
  const sweeper = setInterval(() => {
    const at = options.clock()
    sessions.sweep(at)
    transport.connections.sweep(at)
  }, SWEEP_MS).unref()
  const closed = new AbortController()

  return {
    async call(call) {
      const { era } = call.resource
      if (era === null) throw failed('it has never been read, so its era is unknown')
      return era === 'modern' ? callModern(transport, call) : callLegacy(transport, sessions, call)
    },
    async respond(_permit, resource, owner, response) {
      const lease = await sessions.leaseExisting(resource, owner, closed.signal)
      if (lease === null) throw failed('there is no session that could have asked')
      const headers = sessionHeaders(lease.session)
      try {
        await notify(transport, { resource, text: response, headers, signal: closed.signal })
      } finally {
        lease.release()
      }
    },
    endSession: (principalId, sessionId) => sessions.endOf(principalId, sessionId),
    read: (permit, resource, signal) => readUpstream({ transport, permit, resource, signal }),
    async close() {
      clearInterval(sweeper)
      closed.abort(failed('the gateway stops'))
      await sessions.close()
      await transport.connections.close()
    },
  }
}

function wireOf(options: UpstreamOptions): Transport {
  const { allowPrivate, connectMs, answerMs, totalMs, maxMessageBytes, maxTotalBytes } = options
  const { clock, secret, resolve } = options
  let last = 0
  return {
    connections: openConnections({
      allowPrivate,
      connectMs,
      headersMs: answerMs,
      idleMs: answerMs,
      clock,
      secret,
      ...(resolve && { resolve }),
    }),
    limits: { maxMessageBytes, maxTotalBytes, totalMs },
    nextId: () => {
      last += 1
      return last
    },
  }
}
