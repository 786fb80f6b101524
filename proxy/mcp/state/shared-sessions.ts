import { createHmac, hash } from 'node:crypto'
import { deflateRawSync, inflateRawSync } from 'node:zlib'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { claimOnce, isClaimed } from '../../../db/single-uses.ts'
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import { isObject, type JsonObject } from '../../../db/support/json.ts'
import { isReplay } from '../../../plugins/dpop/single-use.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import { openSealed, sealBytes } from '../../../plugins/secrets/seal.ts'
import { monotonicClock } from '../../../plugins/secrets/throttle.ts'
import { paramsInvalid } from '../protocol/json-text.ts'
import { type CallerSession, type CallerSessionStore, CallerSessions } from './sessions.ts'

/** A header of all processes behind a balancer must hold it. Characters. */
const MAX_ID = 4_096
/** Twice what two objects of handshake.ts may be. */
const MAX_TEXT = 131_072

type SealedSession = Omit<CallerSession, 'id'> & {
  readonly until: number
}

/** Session ids that describe the session to every process with the same secret: `name.sealed`. */
export class SessionSeal {
  readonly #key: Buffer

  /** `secret`: at least 32 random bytes that all replicas share. */
  constructor(secret: Buffer) {
    this.#key = createHmac('sha256', secret).update('mcp session').digest()
  }

  /** Makes the id of a session; null if it would be too long. */
  seal({ principalId, resourceId, capabilities, clientInfo, until, grant }: SealedSession): string | null {
    const facts = [principalId, resourceId, capabilities, clientInfo, until, ...(grant ? [grant] : [])]
    const text = deflateRawSync(JSON.stringify(facts))
    const id = idOf(sealBytes(this.#key, text))
    return id.length > MAX_ID ? null : id
  }

  /** Reads an id. Undefined if it is none of ours. */
  open(id: string): SealedSession | undefined {
    const sealed = Buffer.from(id.replace('.', ''), 'base64url')
    // One text of each: another one would be another session.
    if (id.length > MAX_ID || id !== idOf(sealed)) return undefined
    try {
      const opened = openSealed(this.#key, sealed)
      return factsOf(JSON.parse(inflateRawSync(opened, { maxOutputLength: MAX_TEXT }).toString()))
    } catch {
      // Somebody else's, or changed.
      return undefined
    }
  }
}

/** The nonce stands before the dot, and names the session. */
const idOf = (sealed: Buffer): string => sealed.toString('base64url').replace(/^.{16}/, '$&.')

/** Sealed by us alone; by another version, perhaps. */
function factsOf(read: unknown): SealedSession | undefined {
  if (!Array.isArray(read)) return undefined
  const [principalId, resourceId, capabilities, clientInfo, until, grant] = read as unknown[]
  if (typeof principalId !== 'string' || typeof until !== 'number' || !isObject(capabilities))
    return undefined
  return {
    principalId,
    resourceId: typeof resourceId === 'string' ? resourceId : null,
    // Parsed from JSON: nothing else is in them.
    capabilities: capabilities as JsonObject,
    clientInfo: isObject(clientInfo) ? (clientInfo as JsonObject) : null,
    until,
    ...(typeof grant === 'string' && { grant }),
  }
}

/** The longest life of a session. Its client is told to initialize again then. ms. */
const LIFE_MS = 24 * 60 * 60 * 1000
/** The sessions that one principal may end in a minute: each is a row until its life would have ended. */
const MAX_ENDED_PER_MINUTE = 120
/** The ends that are remembered, for a look that is under way. */
const MAX_REMEMBERED_ENDS = 10_000
const ENDED = 'mcp-session-ended'

interface SharedSessionDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly secret: Buffer
  readonly onEnd: (session: CallerSession) => void
  readonly clock: () => number
}

/** The sessions of legacy clients that all processes honour. The end of one is a row, and a notice. */
export class SharedSessions implements CallerSessionStore {
  readonly #sources: SharedSessionDependencies
  readonly #seal: SessionSeal
  readonly #hasEnded: ReturnType<typeof isClaimed>
  /** Sessions used here last. */
  readonly #here: CallerSessions
  /** When it was looked up that a session has not ended. ms of `performance.now()`. */
  readonly #lookedAt = new WeakMap<CallerSession, number>()
  readonly #ended = boundedCache<true>(MAX_REMEMBERED_ENDS)
  readonly #quota = new PrincipalQuota(monotonicClock, () => MAX_ENDED_PER_MINUTE)

  constructor(sources: SharedSessionDependencies) {
    this.#sources = sources
    this.#seal = new SessionSeal(sources.secret)
    this.#here = new CallerSessions(sources.onEnd)
    this.#hasEnded = isClaimed(sources.database)
    sources.database.notices.on(ENDED, (id) => this.#forget(id))
  }

  open(opened: Omit<CallerSession, 'id'>, at: number): CallerSession {
    const until = at + LIFE_MS
    const id =
      this.#seal.seal({ ...opened, until }) ?? this.#seal.seal({ ...opened, clientInfo: null, until })
    if (id === null) throw paramsInvalid('capabilities are too large.')
    const session = this.#here.open(opened, at, id)
    this.#lookedAt.set(session, performance.now())
    return session
  }

  find(principalId: string, id: string, at: number): ReturnType<CallerSessionStore['find']> {
    const here = this.#here.find(principalId, id, at)
    return here && this.#isCertain(here) ? here : this.#look(principalId, id, at)
  }

  async end(principalId: string, id: string): Promise<boolean> {
    const { database, ledger, clock } = this.#sources
    const sealed = this.#own(principalId, id, clock())
    if (!sealed || (await this.#hasEnded(digestOf(id)))) return false
    const wait = this.#quota.consume(principalId)
    if (wait > 0) throw new Refusal('overloaded', { headers: { 'retry-after': String(wait) } })
    try {
      const ended = claimOnce(database, digestOf(id), sealed.until)
      await ledger.commit({ statements: [ended], entries: [] })
    } catch (error) {
      if (isReplay(error)) return false
      throw new Refusal('audit_unavailable', { cause: error, headers: { 'retry-after': '1' } })
    }
    this.#forget(id)
    database.notices.notify(ENDED, id)
    return true
  }

  #isCertain(session: CallerSession): boolean {
    const { listening, since = Number.NEGATIVE_INFINITY } = this.#sources.database.notices
    return listening && (this.#lookedAt.get(session) ?? Number.NEGATIVE_INFINITY) >= since
  }

  async #look(principalId: string, id: string, at: number): Promise<CallerSession | undefined> {
    const sealed = this.#own(principalId, id, at)
    if (!sealed) return undefined
    const lookedAt = performance.now()
    if ((await this.#hasEnded(digestOf(id))) || this.#ended.has(id)) {
      this.#forget(id)
      return undefined
    }
    const session = this.#here.find(principalId, id, at) ?? this.#here.open(sealed, at, id)
    this.#lookedAt.set(session, lookedAt)
    return session
  }

  #own(principalId: string, id: string, at: number) {
    const sealed = this.#seal.open(id)
    return sealed?.principalId === principalId && at < sealed.until ? sealed : undefined
  }

  #forget(id: string): void {
    const sealed = this.#seal.open(id)
    if (!sealed) return
    this.#ended.set(id, true)
    this.#here.end(sealed.principalId, id)
  }
}

const digestOf = (id: string): string => hash('sha256', `mcp session ended ${id}`)
