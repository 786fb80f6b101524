import { createHmac, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import type { StoredSession } from '../../db/operators/sessions.ts'
import { storedCapabilities } from '../../db/principals/pins.ts'
import type { PrincipalType } from '../../db/schema.ts'
import type { RowAssertion } from '../../db/support/statement.ts'
import type { Principal } from '../facts.ts'
import { commitmentsBy, type KeyLookup, type PinnedCaller } from '../pin/pin.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { type ChangeAuthor, storedOperator, unstoredOperator } from './actor.ts'
import type { BrowserSession, KnownOperator, SessionQuestion, VerifiedCredentials } from './operator.ts'

/** The cookies of administration. `__Host-`: only this host sets them, over TLS (RFC 6265bis §4.1.3.2). */
export const SESSION_COOKIE = '__Host-sallyport'
export const TRANSACTION_COOKIE = '__Host-sallyport-signin'

/** The value of the one cookie of that name; null if there is none, or more than one. */
export function cookieOf({ cookie = '' }: IncomingHttpHeaders, name: string): string | null {
  const values = cookie
    .split(';')
    .map((pair) => pair.trim())
    .filter((pair) => pair.startsWith(`${name}=`))
  const [only] = values
  return only !== undefined && values.length === 1 ? only.slice(name.length + 1) : null
}

/** Prints a cookie that no script reads. `lifeS`: absent, it ends with the browser; 0: it is gone at once. */
export const setCookie = (name: string, value: string, sameSite: 'Strict' | 'Lax', lifeS?: number): string =>
  `${name}=${value}; Path=/; Secure; HttpOnly; SameSite=${sameSite}${lifeS === undefined ? '' : `; Max-Age=${lifeS}`}`

const ID_BYTES = 32
const ID = /^[A-Za-z0-9_-]{43}$/

/** The rules for sessions in the configuration in force. */
export interface SessionRules {
  /** ms, like the other. */
  readonly idleMs: number
  readonly absoluteMs: number
  /** The marks of all that lets people of the identity provider in (proxy/operators/oidc/mapping.ts). */
  readonly marks: ReadonlySet<string>
}

export interface StoredSessionDependencies {
  readonly find: (digest: string) => Promise<StoredSession | undefined>
  /** Asserts that a session has not been ended. */
  readonly stands: (digest: string) => RowAssertion
  /** Notes the use of a session. Waits for nobody. */
  readonly touch: (digest: string, before: string, at: number) => void
  /** The secret as it is stored; null if none opens anything. */
  readonly secret: () => Promise<string | null>
  readonly secretUnchanged: (hash: string) => RowAssertion
  /** `MCP_PROXY_ADMIN_SECRET`: the secret while none is stored. */
  readonly environment: string
  readonly unchanged: (type: PrincipalType, ref: string, revision: number) => RowAssertion
  readonly keys: KeyLookup
  /** Finds the present holder of the certificate of a connection. */
  readonly pin: Plugin<Arrival, PinnedCaller>
  /** 32 bytes that all processes of the service have, and nobody else. */
  readonly key: Buffer
}

export interface NewSessionId {
  /** The cookie's value: stored nowhere. */
  readonly id: string
  /** Lower-case hex SHA-256 of it. */
  readonly digest: string
}

export interface SessionOperator extends KnownOperator {
  readonly session: BrowserSession
}

export interface EndingSession {
  readonly digest: string
  readonly author: ChangeAuthor
}

/** Asks for the proof that goes with a certificate. Refuses as `dpop` does. */
type AskProof = (facts: Arrival & PinnedCaller) => VerifiedCredentials | Promise<VerifiedCredentials>

/** The sessions of browsers (docs/operators.md#doors): rows in the database. */
export class BrowserSessions {
  readonly #sources: StoredSessionDependencies

  constructor(sources: StoredSessionDependencies) {
    this.#sources = sources
  }

  /** A session's id is new at each sign-in: a browser's own value never becomes one. */
  newId(): NewSessionId {
    const id = randomBytes(ID_BYTES).toString('base64url')
    return { id, digest: digestOf(id) }
  }

  /**
   * Finds the operator of the session that a request names, as the database says it now. Null if it names
   * none that holds: unknown, ended, over, or its credential is no more. Refuses with
   * `principal_deactivated`, and as `pin` and `dpop` do. Does NOT look at which page has made the request:
   * {@link sessionDoor} does.
   */
  async find(arrival: Arrival, rules: SessionRules, proof: AskProof): Promise<SessionOperator | null> {
    const id = cookieOf(arrival.headers, SESSION_COOKIE)
    if (id === null || !ID.test(id)) return null
    const stored = await this.#sources.find(digestOf(id))
    if (!stored) return null
    const end = sessionEnd(stored, rules)
    if (arrival.at >= end || !isRecentlyUsed(stored, rules, arrival.at)) return null
    const operating = await this.#operatorOf(stored, rules, arrival, proof)
    if (!operating) return null
    if (arrival.headers[WATCHING_HEADER] === undefined) this.#note(stored, rules, arrival.at)
    // Proven by the table: an array of texts.
    const amr = JSON.parse(stored.amr) as readonly string[]
    const { id_sha256: digest } = stored
    return { ...operating, session: { digest, amr, csrf: this.csrfOf(id), expiresAt: end } }
  }

  /** Finds a session for ending it, whatever its credential. Refuses with `csrf_invalid`. */
  async toEnd(arrival: Pick<Arrival, 'headers'>): Promise<EndingSession | null> {
    const digest = this.digestIn(arrival)
    const stored = digest === null ? undefined : await this.#sources.find(digest)
    if (!stored) return null
    const csrf = this.csrfOf(cookieOf(arrival.headers, SESSION_COOKIE) ?? '')
    checkCsrf({ csrf }, arrival.headers['x-csrf-token'])
    const { id_sha256, via, principal_id: id } = stored
    return { digest: id_sha256, author: { id: id ?? 'admin', type: 'operator', via, standing: [] } }
  }

  /** The digest of the session that a request names, whether there is one or not; null: it names none. */
  digestIn({ headers }: Pick<Arrival, 'headers'>): string | null {
    const id = cookieOf(headers, SESSION_COOKIE)
    return id === null || !ID.test(id) ? null : digestOf(id)
  }

  /** The token that a page of ours sends with each change: no other page can know it. */
  csrfOf(id: string): string {
    return createHmac('sha256', this.#sources.key).update(`csrf ${id}`).digest('base64url')
  }

  /** The mark of sessions by the secret of this hash: another secret has another mark. */
  secretMark(stored: string): string {
    const { environment, key } = this.#sources
    const text = stored === '' ? `environment ${environment}` : `stored ${stored}`
    return createHmac('sha256', key).update(text).digest('hex')
  }

  async #operatorOf(
    stored: StoredSession,
    { marks }: SessionRules,
    arrival: Arrival,
    proof: AskProof,
  ): Promise<KnownOperator | null> {
    const { stands, unchanged, keys } = this.#sources
    const standing = [stands(stored.id_sha256)]
    // Proven by the table: an array of texts.
    const own = JSON.parse(stored.mapped_by) as readonly string[]
    if (stored.via === 'secret') return this.#bySecret(own, standing)
    if (stored.via === 'certificate') return this.#byCertificate(stored, own, standing, arrival, proof)
    if (own.length === 0 || !own.every((mark) => marks.has(mark))) return null
    const principal = principalOf(stored)
    if (!principal) return null
    const { ref, revision } = principal
    const operating = storedOperator(principal, 'oidc', [unchanged('operator', ref, revision), ...standing])
    const commitments = commitmentsBy(keys.known.get(ref) ?? (await keys.open(ref)), arrival.id)
    return { ...operating, ...UNPROVEN, principal, commitments }
  }

  /** Asks a session all that its certificate alone would be asked. Refuses as `pin` and `dpop` do. */
  async #byCertificate(
    { principal_id: id }: StoredSession,
    [thumbprint]: readonly string[],
    standing: readonly RowAssertion[],
    arrival: Arrival,
    askProof: AskProof,
  ): Promise<KnownOperator | null> {
    const { pin, unchanged } = this.#sources
    if (arrival.peer === null || arrival.peer.thumbprint !== thumbprint) return null
    const pinned = await pin.admit(arrival)
    const { principal, commitments } = pinned
    if (principal.type !== 'operator' || principal.id !== id) return null
    const { proof, token } = await askProof({ ...arrival, ...pinned })
    const { ref, revision } = principal
    const stands = [unchanged('operator', ref, revision), ...standing]
    const operating = storedOperator(principal, 'certificate', stands, token?.scope ?? null)
    return { ...operating, proof, token, principal, commitments }
  }

  async #bySecret(
    [mark]: readonly string[],
    standing: readonly RowAssertion[],
  ): Promise<KnownOperator | null> {
    const { secret, secretUnchanged } = this.#sources
    const stored = await secret()
    if (stored === null || mark !== this.secretMark(stored)) return null
    const operating = unstoredOperator('admin', 'secret', [secretUnchanged(stored), ...standing])
    return { ...operating, ...UNPROVEN }
  }

  #note({ id_sha256: digest, used_at: before }: StoredSession, { idleMs }: SessionRules, at: number): void {
    if (at - Date.parse(before) >= Math.min(NOTED_MS, idleMs / 4)) this.#sources.touch(digest, before, at)
  }
}

/** No proof and no token: nobody is asked for them in a session that rests on no certificate. */
const UNPROVEN: VerifiedCredentials = { proof: null, token: null }

/** The header of requests that a page makes by itself: they are no use of a session. */
export const WATCHING_HEADER = 'x-sallyport-watching'

/** The time between two notes of a session's use; less if a session ends before it is unused for long. ms. */
const NOTED_MS = 60_000

const digestOf = (id: string): string => hash('sha256', id)

/** The end of a session, however much it is used. ms since the epoch. */
export const sessionEnd = (
  { created_at, expires_at }: Pick<StoredSession, 'created_at' | 'expires_at'>,
  { absoluteMs }: Pick<SessionRules, 'absoluteMs'>,
): number => Math.min(Date.parse(expires_at), Date.parse(created_at) + absoluteMs)

/** True if a session was used within the time for which it may be unused. */
export const isRecentlyUsed = (
  { used_at }: Pick<StoredSession, 'used_at'>,
  { idleMs }: Pick<SessionRules, 'idleMs'>,
  at: number,
): boolean => at - Date.parse(used_at) < idleMs

function principalOf(stored: StoredSession): Principal | null {
  const { principal_id: id, capabilities, authority_revision: revision, is_active: active } = stored
  if (id === null || capabilities === null || revision === null) return null
  if (active !== 1) throw new Refusal('principal_deactivated')
  return {
    id,
    ref: id,
    type: 'operator',
    capabilities: storedCapabilities(capabilities),
    dpopJkt: null,
    previousDpopJkt: null,
    inGrace: false,
    revision,
  }
}

/** The methods that change nothing. */
const SAFE: ReadonlySet<string> = new Set(['GET', 'HEAD'])

/** The demands of one configuration on a session, in addition to its stored ones. */
interface SessionTerms {
  readonly rules: SessionRules
  readonly proof: Plugin<Arrival & PinnedCaller, VerifiedCredentials>
}

interface SessionDoor {
  /** Finds the operator of the session. Checks which page asks and, if something is changed, its token. */
  readonly changing: SessionQuestion<SessionOperator>
  /** The same without the token, for pages and forms, which have it in a field. */
  readonly showing: SessionQuestion<SessionOperator>
}

/**
 * Makes the questions for the session of a request, first by the terms of one configuration, and again by
 * those in force. Refuses the pages of other sites with `origin_not_allowed`, and changes without the
 * session's own token in `X-Csrf-Token` with `csrf_invalid`.
 */
export function sessionDoor(
  sessions: BrowserSessions,
  page: Plugin<Arrival, object>,
  { rules, proof }: SessionTerms,
  rulesInForce: () => SessionRules,
): SessionDoor {
  const asked = async (
    arrival: Arrival,
    terms: SessionRules,
    askProof: AskProof,
  ): Promise<SessionOperator | null> => {
    const found = await sessions.find(arrival, terms, askProof)
    if (found) await page.admit(arrival)
    return found
  }
  const showing: SessionQuestion<SessionOperator> = {
    first: (arrival) => asked(arrival, rules, proof.admit),
    again: (facts) => {
      // That an answer is still open is no use of its session.
      const headers = { ...facts.headers, [WATCHING_HEADER]: 'yes' }
      const still: AskProof = async (pinned) => ({
        ...facts,
        ...(await proof.still?.({ ...facts, ...pinned })),
      })
      return asked({ ...facts, headers }, rulesInForce(), still)
    },
  }
  const changing: SessionQuestion<SessionOperator> = {
    first: async (arrival) => {
      const found = await showing.first(arrival)
      if (found && !SAFE.has(arrival.method)) checkCsrf(found.session, arrival.headers['x-csrf-token'])
      return found
    },
    again: showing.again,
  }
  return { changing, showing }
}

/** Refuses with `csrf_invalid` any other token than this session's. */
export function checkCsrf({ csrf }: Pick<BrowserSession, 'csrf'>, given: unknown): void {
  const [expected, sent] = [Buffer.from(csrf), Buffer.from(typeof given === 'string' ? given : '')]
  if (expected.length !== sent.length || !timingSafeEqual(expected, sent)) throw new Refusal('csrf_invalid')
}
