import { randomBytes } from 'node:crypto'
import type { JsonObject } from '../../../db/support/json.ts'

export interface CallerSession {
  readonly id: string
  readonly principalId: string
  /** The resource whose path it was opened at, or null for `/v1/mcp`. */
  readonly resourceId: string | null
  readonly capabilities: JsonObject
  readonly clientInfo: JsonObject | null
  /** The grant that it was opened by, and its grade; absent: a certificate. */
  readonly grant?: string
}

/** The sessions of legacy clients: each is bound to the principal that opened it. */
export interface CallerSessionStore {
  readonly open: (opened: Omit<CallerSession, 'id'>, at: number) => CallerSession
  /** Undefined if there is none of that id, or it is another principal's. */
  readonly find: (
    principalId: string,
    id: string,
    at: number,
  ) => CallerSession | undefined | Promise<CallerSession | undefined>
  /** Ends a session. False if there was none. */
  readonly end: (principalId: string, id: string) => boolean | Promise<boolean>
}

/** A session unused for so long is forgotten; its client is told to initialize again. ms. */
const IDLE_MS = 60 * 60 * 1000
/** Sessions open at once for one principal; the one unused for longest goes. */
const MAX_OF_PRINCIPAL = 64

interface OpenSession extends CallerSession {
  usedAt: number
}

/** The sessions of one process (docs/threats.md#threat-6). Nobody drives out somebody else's. */
export class CallerSessions implements CallerSessionStore {
  readonly #byPrincipal = new Map<string, Map<string, OpenSession>>()
  readonly #onEnd: (session: CallerSession) => void

  /** `onEnd` is called for every session that ends, however it ends. */
  constructor(onEnd: (session: CallerSession) => void) {
    this.#onEnd = onEnd
  }

  open(
    opened: Omit<CallerSession, 'id'>,
    at: number,
    id = randomBytes(24).toString('base64url'),
  ): CallerSession {
    const own = this.#byPrincipal.get(opened.principalId) ?? new Map<string, OpenSession>()
    this.#byPrincipal.set(opened.principalId, own)
    for (const session of own.values()) {
      // Sorted by their last use: the first that is young enough ends the search.
      const tooMany = own.size >= MAX_OF_PRINCIPAL
      if (!tooMany && at - session.usedAt < IDLE_MS) break
      this.end(session.principalId, session.id)
    }
    const session = { ...opened, id, usedAt: at }
    own.set(session.id, session)
    this.#byPrincipal.set(opened.principalId, own)
    return session
  }

  find(principalId: string, id: string, at: number): CallerSession | undefined {
    const own = this.#byPrincipal.get(principalId)
    const session = own?.get(id)
    if (!own || !session) return undefined
    if (at - session.usedAt >= IDLE_MS) {
      this.end(principalId, id)
      return undefined
    }
    own.delete(id)
    own.set(id, session)
    session.usedAt = at
    return session
  }

  end(principalId: string, id: string): boolean {
    const own = this.#byPrincipal.get(principalId)
    const session = own?.get(id)
    if (!own || !session) return false
    own.delete(id)
    if (own.size === 0) this.#byPrincipal.delete(principalId)
    this.#onEnd(session)
    return true
  }
}
