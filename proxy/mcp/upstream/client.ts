import type { McpResource } from '../../../db/mcp/resources.ts'
import { hangupFromSignal } from '../../../plugins/call-authority.ts'
import type { CallPermit, OperatorPermit } from '../../../plugins/permit.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { ResolveHost } from '../../egress/agent.ts'
import type { McpUpstreamLimits } from '../options.ts'
import { notificationMessage } from '../protocol/json-text.ts'
import type { ProtocolEra } from '../protocol/versions.ts'
import type { McpAnswer } from './answers.ts'
import { type CallerAccount, type ConnectionOptions, openConnections } from './connections.ts'
import { callModern, endUpstreamSession, type ModernCall, openUpstreamSession } from './eras.ts'
import { isOfNewerEra, sessionMayBeGone } from './error-answers.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import { eraNow, readMcpServer, type UpstreamReading } from './reading.ts'
import { sendMcpRequest, sendOneWayMessage, type UpstreamTransport } from './request.ts'
import {
  type ClientIdentity,
  type SessionLease,
  type SessionOwner,
  type UpstreamSession,
  UpstreamSessions,
} from './sessions.ts'

/** Nobody waits for a cancellation longer. ms. */
const CANCEL_MS = 2_000
/** Idle sessions and connections are looked for so often. ms. */
const SWEEP_MS = 60_000

export interface McpUpstreamOptions extends McpUpstreamLimits {
  /** True: upstreams may be at loopback or private addresses. */
  readonly allowPrivate: boolean
  readonly clock: () => number
  /** Reads `env:MCP_SECRET_…` or `file:/path`. */
  readonly secret: (reference: string) => Promise<string>
  /** Default: the system's resolver. */
  readonly resolve?: ResolveHost
  readonly isSaid?: NonNullable<ConnectionOptions['isSaid']>
  /** Finds the account by which the definitions of a resource of accounts are read. Rejects if there is none. */
  readonly readerOf?: (resource: McpResource) => Promise<CallerAccount>
}

export interface UpstreamCall extends Omit<ModernCall, 'account'> {
  readonly permit: CallPermit
  /** The era that the upstream is spoken to in. Null: it was never read. */
  readonly era: ProtocolEra | null
  /** The owner of the legacy session, with the account of the call: no two owners share one. */
  readonly owner: SessionOwner
  readonly client: ClientIdentity
}

/** The MCP servers behind this gateway. Every failure because of one is a McpUpstreamError. */
export interface McpUpstream {
  /**
   * Sends one request and resolves with its answer, or the head of an event stream. Rejects with
   * McpUpstreamError, or the reason why nobody waits any more. `other_era`, the cure of an error: the server
   * speaks that one now and has done nothing.
   */
  readonly call: (call: UpstreamCall) => Promise<McpAnswer>
  /** Hands a JSON-RPC response to the session whose server asked for it. Rejects if there is none. */
  readonly respond: (
    permit: CallPermit,
    resource: McpResource,
    owner: SessionOwner,
    response: string,
  ) => Promise<void>
  readonly endSession: (principalId: string, sessionId: string) => Promise<void>
  readonly read: (
    permit: OperatorPermit,
    resource: McpResource,
    signal: AbortSignal,
  ) => Promise<UpstreamReading>
  readonly close: () => Promise<void>
}

/**
 * Speaks to upstream MCP servers over Streamable HTTP, of either era. Connections go to vetted addresses
 * only, TLS is verified, redirects and cookies are not followed, and nothing of a caller's own headers is
 * ever sent.
 *
 * Every message needs a permit, but the DELETE of a session that a permitted call or reading has opened. The
 * notification that cancels a request goes under the permit of that request, and out also once that is
 * revoked.
 *
 * Does NOT decide who may call what, nor look into params and results.
 */
export function openMcpUpstream(options: McpUpstreamOptions): McpUpstream {
  const transport = transportOf(options)
  const { readerOf = nobodyReads } = options
  const sessions = new UpstreamSessions({
    open: async (opening) => (await openUpstreamSession(transport, opening)).session,
    end: (resource, session, account) => endUpstreamSession(transport, resource, session, account),
    clock: options.clock,
  })
  const sweeper = setInterval(() => {
    const at = options.clock()
    sessions.sweep(at)
    transport.connections.sweep(at)
  }, SWEEP_MS).unref()
  const stopping = new AbortController()
  const closed = hangupFromSignal(stopping.signal)

  return {
    call(call) {
      if (call.era === 'modern') return callStateless(transport, call)
      if (call.era === 'legacy') return callLegacy(transport, sessions, call)
      return Promise.reject(mcpUpstreamFailure('it has never been read, so its era is unknown'))
    },
    async respond(permit, resource, owner, response) {
      const lease = await sessions.leaseExisting(resource, owner, closed)
      if (lease === null) throw mcpUpstreamFailure('there is no session that could have asked')
      const { headers } = lease.session
      const message = {
        permit,
        resource,
        account: accountOf({ owner }),
        text: response,
        headers,
        hangup: closed,
      }
      try {
        await sendOneWayMessage(transport, message)
      } finally {
        lease.release()
      }
    },
    endSession: (principalId, sessionId) => sessions.endOf(principalId, sessionId),
    async read(permit, resource, signal) {
      if (permit.resourceId !== resource.resource_id) {
        throw new Error(
          `the permit is for the reading of ${permit.resourceId}, not of ${resource.resource_id}`,
        )
      }
      const account = resource.auth_type === 'oauth' ? await readerOf(resource) : null
      return readMcpServer({ transport, permit, resource, account, hangup: hangupFromSignal(signal) })
    },
    async close() {
      clearInterval(sweeper)
      stopping.abort(mcpUpstreamFailure('the gateway stops'))
      await sessions.close()
      await transport.connections.close()
    },
  }
}

const accountOf = ({ owner }: Pick<UpstreamCall, 'owner'>): CallerAccount | null => owner.account ?? null

const nobodyReads = (): Promise<never> =>
  Promise.reject(mcpUpstreamFailure('it is read by an account, and the listener for people is closed'))

function transportOf(options: McpUpstreamOptions): UpstreamTransport {
  let last = 0
  return {
    connections: openConnections(options),
    limits: options,
    nextId: () => {
      last += 1
      return last
    },
  }
}

/** Sends a request to a modern upstream. One that refuses its form alone has done nothing. */
async function callStateless(transport: UpstreamTransport, call: UpstreamCall): Promise<McpAnswer> {
  const account = accountOf(call)
  const reader = { ...call, account, transport }
  let failure: McpUpstreamError
  try {
    const answer = await callModern(transport, { ...call, account })
    if (!doubtsEra(answer)) return answer
    // It knows this era's errors, but perhaps not its version any more.
    if ((await eraNow(reader, 'modern')) !== 'legacy') return answer
    failure = mcpUpstreamFailure('it refuses the version', { status: answer.status })
  } catch (error) {
    if (!(error instanceof McpUpstreamError) || !refusesForm(error)) throw error
    if ((await eraNow(reader, 'modern')) !== 'legacy') throw error
    failure = error
  }
  throw otherEra('legacy', failure)
}

/** Tells an error of a server that may speak the other era now: it does not answer the request itself. */
const doubtsEra = (answer: McpAnswer): boolean =>
  !answer.streamed &&
  answer.status >= 400 &&
  (isOfNewerEra(answer.response) ||
    ((answer.status === 400 || answer.status === 404) && answer.response.value.id !== answer.requestId))

/** Tells a refusal that comes before a request is looked into, and does not answer it. */
const refusesForm = ({ kind, status }: McpUpstreamError): boolean =>
  kind === 'failed' && (status === 400 || status === 404)

/** Tells a handshake that was refused by a server which may not know it any more. */
const refusesHandshake = ({ kind, status, cure }: McpUpstreamError): boolean =>
  kind === 'failed' &&
  cure === null &&
  (status === null || (status >= 400 && status < 500 && ![401, 403, 429].includes(status)))

const otherEra = (now: ProtocolEra, cause: unknown): McpUpstreamError =>
  mcpUpstreamFailure(`it speaks the ${now} era now: it is read again`, { cause, cure: 'other_era' })

/** Sends a request in the owner's session; once more in a new one, if the upstream knows it no more. */
async function callLegacy(
  transport: UpstreamTransport,
  sessions: UpstreamSessions,
  call: UpstreamCall,
  isSecondTry = false,
): Promise<McpAnswer> {
  const leased = sessions.lease(call)
  const lease = leased instanceof Promise ? await leaseOrRetry(leased, transport, sessions, call) : leased
  const { session } = lease
  const account = accountOf(call)
  const reader = { ...call, account, transport }
  const requestId = transport.nextId()
  try {
    const answer = await sendMcpRequest(transport, {
      ...call,
      account,
      requestId,
      era: 'legacy',
      session: session.id === null ? 'unnamed' : 'named',
      headers: session.headers,
      settled: (answered) => {
        lease.release()
        if (!answered) void cancel(transport, call, session, requestId)
      },
    })
    if (answer.status < 400 || answer.streamed) return answer
    if (sessionMayBeGone(answer.status, answer.response)) lease.forget()
    if (!doubtsEra(answer) || (await eraNow(reader, 'legacy')) !== 'modern') return answer
    lease.forget()
    throw otherEra('modern', mcpUpstreamFailure('it knows no sessions', { status: answer.status }))
  } catch (error) {
    const isRefused = error instanceof McpUpstreamError && error.cure === null && refusesForm(error)
    const hasMoved = isRefused && (await eraNow(reader, 'legacy')) === 'modern'
    const isUnknown = error instanceof McpUpstreamError && error.cure === 'new_session'
    if (!hasMoved && !isUnknown) throw error
    lease.forget()
    if (hasMoved) throw otherEra('modern', error)
    if (isSecondTry) throw error
  }
  return callLegacy(transport, sessions, call, true)
}

/**
 * A session is opened under the permission of one call of its owner. If that was revoked meanwhile, another
 * call that waits for the session opens one by itself. A server that refuses the handshake may have moved to
 * the modern era.
 */
async function leaseOrRetry(
  leased: Promise<SessionLease>,
  transport: UpstreamTransport,
  sessions: UpstreamSessions,
  call: UpstreamCall,
): Promise<SessionLease> {
  try {
    return await leased
  } catch (error) {
    if (error instanceof McpUpstreamError && refusesHandshake(error)) {
      const reader = { ...call, account: accountOf(call), transport }
      if ((await eraNow(reader, 'handshake')) === 'modern') throw otherEra('modern', error)
    }
    if (!(error instanceof Refusal) || error.reason !== 'authority_revoked') throw error
    await call.permit.authority.confirm()
    return sessions.lease(call)
  }
}

/** Cancels a request, which hanging up does not in this era (2025-11-25, transports). Best effort. */
async function cancel(
  transport: UpstreamTransport,
  call: UpstreamCall,
  session: UpstreamSession,
  requestId: number,
): Promise<void> {
  const { permit, resource } = call
  const account = accountOf(call)
  const params = JSON.stringify({ requestId, reason: 'The caller does not wait any longer.' })
  const text = notificationMessage('notifications/cancelled', params)
  const hangup = hangupFromSignal(AbortSignal.timeout(CANCEL_MS))
  try {
    const { headers } = session
    await sendOneWayMessage(transport, { permit, takesBack: true, resource, account, text, headers, hangup })
  } catch {
    // The upstream finishes an answer that nobody will read.
  }
}
