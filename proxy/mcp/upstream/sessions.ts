import type { McpResource } from '../../../db/mcp/resources.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { hangupFromSignal } from '../../../plugins/call-authority.ts'
import { withDeadline } from '../../../plugins/deadline.ts'
import type { HangupSignal } from '../../../plugins/plugin.ts'
import type { CallerAccount } from './connections.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import type { UpstreamPermit } from './request.ts'

/** A session that nothing has gone through for so long is ended. ms. */
const IDLE_MS = 600_000
/** The interval of sweeps while sessions are in use. ms. */
const SWEEP_MS = 1_000
const MAX_SESSIONS = 1_000
/** No more sessions are kept for one principal, so that nobody's drive out everybody else's. */
const MAX_OF_PRINCIPAL = 100

export interface UpstreamSession {
  /** Null if the upstream gave none: it keeps none, or one for everybody. */
  readonly id: string | null
  readonly protocolVersion: string
  /** Headers of every message in it, names and values in turn. */
  readonly headers: readonly string[]
}

/** The client that an upstream is told it serves. */
export interface ClientIdentity {
  readonly capabilities: JsonObject
  /** Null: this gateway's own. */
  readonly clientInfo: JsonObject | null
}

export interface SessionOpening {
  readonly permit: UpstreamPermit
  readonly resource: McpResource
  readonly account: CallerAccount | null
  readonly client: ClientIdentity
  readonly hangup: HangupSignal
}

export interface SessionOwner {
  readonly principalId: string
  /** The caller's own session at this gateway, or null. */
  readonly sessionId: string | null
  /** The questions that a caller without a session can be asked. Absent: none. */
  readonly asked?: string
  /** The account that the session is of. Absent: the server knows none. */
  readonly account?: CallerAccount
}

/** A session while one message goes through it. */
export interface SessionLease {
  readonly session: UpstreamSession
  /** Must be called, once. */
  readonly release: () => void
  /** The upstream does not know it any more: the next lease begins again. */
  readonly forget: () => void
}

interface UpstreamSessionEntry {
  readonly owner: SessionOwner
  readonly resource: McpResource
  readonly session: Promise<UpstreamSession>
  open: UpstreamSession | null
  reserved: string | null
  users: number
  usedAt: number
  /** Grows with each use of any session: which of two was used last. */
  use: number
}

interface UpstreamSessionsOptions {
  readonly open: (opening: SessionOpening) => Promise<UpstreamSession>
  readonly end: (
    resource: McpResource,
    session: UpstreamSession,
    account: CallerAccount | null,
  ) => Promise<void>
  readonly clock: () => number
}

/**
 * The sessions at upstreams of the legacy era: one for each owner and resource, opened once when first
 * needed. No two owners ever have the same, even if an upstream hands one out twice. Not an lru-cache: a
 * session in use must not be dropped.
 */
export class UpstreamSessions {
  readonly #options: UpstreamSessionsOptions
  readonly #held = new Map<string, UpstreamSessionEntry>()
  /** Resource and session id of those that are open. */
  readonly #reserved = new Set<string>()
  readonly #closed = new AbortController()
  #uses = 0
  #sweptAt = Number.NEGATIVE_INFINITY

  constructor(options: UpstreamSessionsOptions) {
    this.#options = options
  }

  /** Leases the owner's session, opened if there is none. Rejects as opening it does. */
  lease(
    opening: Omit<SessionOpening, 'account'> & { readonly owner: SessionOwner },
  ): SessionLease | Promise<SessionLease> {
    const { resource, owner } = opening
    const key = keyOf(resource, owner)
    const at = this.#options.clock()
    if (at - this.#sweptAt >= SWEEP_MS) this.sweep(at)
    const present = this.#held.get(key)
    if (present && present.resource.revision !== resource.revision) void this.#drop(key, present)
    const held = this.#held.get(key) ?? this.#open(key, opening, owner)
    return this.#use(key, held, opening.hangup)
  }

  /** Leases a session as {@link lease} does, but resolves with null if the owner has none there. */
  async leaseExisting(
    resource: McpResource,
    owner: SessionOwner,
    hangup: HangupSignal,
  ): Promise<SessionLease | null> {
    const key = keyOf(resource, owner)
    const held = this.#held.get(key)
    if (!held || held.resource.revision !== resource.revision) return null
    return this.#use(key, held, hangup)
  }

  async endOf(principalId: string, sessionId: string): Promise<void> {
    const theirs = [...this.#held].filter(
      ([, { owner }]) => owner.principalId === principalId && owner.sessionId === sessionId,
    )
    await Promise.all(theirs.map(([key, held]) => this.#drop(key, held)))
  }

  sweep(at: number): void {
    this.#sweptAt = at
    for (const [key, held] of this.#held) {
      if (held.users === 0 && at - held.usedAt >= IDLE_MS) void this.#drop(key, held)
    }
  }

  /** Ends every session; none is opened any more. */
  async close(): Promise<void> {
    this.#closed.abort(new McpUpstreamError('unreachable', 'the gateway stops'))
    await Promise.all([...this.#held].map(([key, held]) => this.#drop(key, held)))
  }

  #open(
    key: string,
    { permit, resource, client }: Omit<SessionOpening, 'account'>,
    owner: SessionOwner,
  ): UpstreamSessionEntry {
    this.#makeRoom(owner)
    // Not the hang-up of the first caller: others may be waiting for the same session.
    const opening = this.#options.open({
      permit,
      resource,
      account: owner.account ?? null,
      client,
      hangup: hangupFromSignal(this.#closed.signal),
    })
    const held: UpstreamSessionEntry = {
      owner,
      resource,
      session: opening.then((session) => {
        held.open = this.#reserve(key, held, session)
        return held.open
      }),
      open: null,
      reserved: null,
      users: 0,
      usedAt: this.#options.clock(),
      use: 0,
    }
    this.#held.set(key, held)
    held.session.catch(() => this.#remove(key, held))
    return held
  }

  #reserve(key: string, held: UpstreamSessionEntry, session: UpstreamSession): UpstreamSession {
    if (this.#held.get(key) !== held) {
      void this.#options.end(held.resource, session, held.owner.account ?? null)
      throw mcpUpstreamFailure('the session was ended while it was opened')
    }
    if (session.id === null) return session
    const name = `${held.resource.resource_id} ${session.id}`
    // Not ended: it is somebody else's.
    if (this.#reserved.has(name)) throw mcpUpstreamFailure('it gave a session that belongs to another owner')
    this.#reserved.add(name)
    held.reserved = name
    return session
  }

  #use(key: string, held: UpstreamSessionEntry, hangup: HangupSignal): SessionLease | Promise<SessionLease> {
    held.users += 1
    const release = (): void => {
      held.users -= 1
      held.usedAt = this.#options.clock()
      this.#uses += 1
      held.use = this.#uses
    }
    const leased = (session: UpstreamSession): SessionLease => ({
      session,
      release,
      forget: () => this.#remove(key, held),
    })
    if (held.open && !hangup.gone) return leased(held.open)
    return withDeadline({ signal: hangup.signal }, () => held.session).then(leased, (error: unknown) => {
      release()
      throw error
    })
  }

  #makeRoom(owner: SessionOwner): void {
    const theirs = [...this.#held].filter(([, held]) => held.owner.principalId === owner.principalId)
    const candidates = theirs.length >= MAX_OF_PRINCIPAL ? theirs : [...this.#held]
    if (candidates === theirs || this.#held.size >= MAX_SESSIONS) {
      const [idle] = candidates
        .filter(([, { users }]) => users === 0)
        .sort(([, one], [, other]) => one.use - other.use)
      if (!idle) throw new McpUpstreamError('unreachable', 'too many sessions have requests under way')
      void this.#drop(...idle)
    }
  }

  /** Forgets a session and tells the upstream. Never rejects. */
  async #drop(key: string, held: UpstreamSessionEntry): Promise<void> {
    this.#remove(key, held)
    try {
      await this.#options.end(held.resource, await held.session, held.owner.account ?? null)
    } catch {
      // It was never opened: there is nothing to end.
    }
  }

  #remove(key: string, held: UpstreamSessionEntry): void {
    if (this.#held.get(key) === held) this.#held.delete(key)
    if (held.reserved !== null) this.#reserved.delete(held.reserved)
    held.reserved = null
  }
}

const keyOf = (
  { resource_id: id }: McpResource,
  { principalId, sessionId, asked = '', account }: SessionOwner,
): string => JSON.stringify([principalId, sessionId, id, asked, account?.id ?? ''])
