import { createHmac, hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { jwtVerify } from 'jose'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { readSetting, writeSetting } from '../../db/settings.ts'
import { parseJwt, refusedTime } from '../../plugins/dpop/jwt.ts'
import type { Principal } from '../../plugins/facts.ts'
import { requireIdentity } from '../../plugins/json-body/json-body.ts'
import { parseJsonObject } from '../../plugins/json-body/object.ts'
import type { Arrival, TlsPeer } from '../../plugins/plugin.ts'
import { clockRefusal, Refusal, SET_CLOCK, type WrongTime } from '../../plugins/refusal.ts'
import { jsonReply, type Reply } from '../http/reply.ts'

/**
 * Opens the secret behind nonces and login challenges. It is in the database, so that every replica hands out
 * and accepts the same, also after a restart; the first boot makes it.
 */
export async function openNonceSecret(
  database: Database,
  ledger: Pick<Ledger, 'commit'>,
  at: number,
): Promise<Buffer> {
  const stored = await readSetting(database, 'dpop_nonce_secret')
  if (stored !== undefined) return Buffer.from(stored, 'base64url')
  const secret = randomBytes(32)
  const statements = [writeSetting(database, 'dpop_nonce_secret', secret.toString('base64url'), at)]
  await ledger.commit({ statements, entries: [] })
  return secret
}

/** The time that a login challenge may be answered. Seconds (docs/protocol.md#login). */
const CHALLENGE_S = 120
/** The longest time that an assertion may be made out for. Seconds. */
const ASSERTION_S = 300
/** The lead that its maker's clock may have over ours: less than a minute. Seconds. */
const ASSERTION_AHEAD_S = 59
/** The lag of that clock that is made up for. Seconds. */
const CLOCK_TOLERANCE_S = 10
const ASSERTION_MAX_BYTES = 32_768
const AUDIENCE = 'agent-trust-broker'

type KnownCallerFacts = Arrival & { readonly principal: Principal }

/**
 * The Python helper's login (docs/protocol.md#login): challenges without state, and the assertions that
 * answer them.
 */
export class LoginChallenges {
  readonly #secret: Buffer

  /** `secret`: at least 32 random bytes that all replicas share. */
  constructor(secret: Buffer) {
    this.#secret = secret
  }

  /**
   * POST /v1/auth/login-challenge. The nonce is bound to the principal; the token that it buys makes it pass
   * only once.
   */
  readonly challenge = ({ principal, at }: KnownCallerFacts): Reply => {
    const open = `${Math.floor(at / 1000) + CHALLENGE_S}.${randomBytes(16).toString('base64url')}`
    const nonce = `${open}.${this.#mac(principal.id, open)}`
    return jsonReply(200, { nonce, expires_in: CHALLENGE_S, agent_id: principal.id })
  }

  /**
   * POST /v1/auth/sign-challenged-assertion: checks whether the assertion would be accepted, and returns it.
   */
  readonly sign = async (facts: KnownCallerFacts): Promise<Reply> => {
    requireIdentity(facts.headers)
    const body = parseJsonObject(await facts.readBody(65_536, facts))
    const { client_assertion: assertion, nonce } = body ?? {}
    if (typeof assertion !== 'string') throw new Refusal('assertion_invalid')
    const checked = await this.check(assertion, facts)
    if (checked.nonce !== nonce) throw new Refusal('assertion_invalid')
    return jsonReply(200, {
      client_assertion: assertion,
      agent_id: facts.principal.id,
      mastio_signature: null,
    })
  }

  /**
   * Checks an assertion: a JWT by the key of the certificate of this very connection, about this principal,
   * for us, in its five minutes, with a challenge of ours. Refuses with `assertion_invalid`. `replayKey` must
   * be claimed.
   */
  async check(
    assertion: string,
    { principal, peer, at }: KnownCallerFacts,
  ): Promise<{ nonce: string; replayKey: string; expiresAt: number }> {
    const jwt = parseJwt(assertion, ASSERTION_MAX_BYTES)
    if (!jwt || !peer || !isLeaf(jwt.header.x5c, peer)) throw new Refusal('assertion_invalid')
    try {
      const { payload } = await jwtVerify(assertion, peer.certificate.publicKey, {
        algorithms: ['ES256', 'RS256'],
        issuer: principal.id,
        subject: principal.id,
        audience: AUDIENCE,
        // The lead is longer than the lag: the challenge is no older than two minutes, and vouches for it.
        clockTolerance: ASSERTION_AHEAD_S,
        maxTokenAge: ASSERTION_S + CLOCK_TOLERANCE_S - ASSERTION_AHEAD_S,
        currentDate: new Date(at),
        requiredClaims: ['jti', 'exp', 'nonce'],
      })
      const { nonce, exp = 0 } = payload
      if (exp <= at / 1000 - CLOCK_TOLERANCE_S) throw wrongClock({ claim: 'exp', time: exp }, at)
      if (typeof nonce !== 'string' || !this.#isOpen(principal.id, nonce, at))
        throw new TypeError('no open challenge')
      // One challenge buys one token, whatever else the assertion says.
      return { nonce, replayKey: hash('sha256', `login ${nonce}`), expiresAt: at + ASSERTION_S * 1000 }
    } catch (cause) {
      if (cause instanceof Refusal) throw cause
      const wrong = refusedTime(cause)
      throw wrong ? wrongClock(wrong, at, cause) : new Refusal('assertion_invalid', { cause })
    }
  }

  #isOpen(principalId: string, nonce: string, at: number): boolean {
    const [until = '', random = '', mac = '', ...more] = nonce.split('.')
    // Any text after it would make another text of a challenge that was used before.
    if (more.length > 0) return false
    const expected = Buffer.from(this.#mac(principalId, `${until}.${random}`))
    const given = Buffer.from(mac)
    return given.length === expected.length && timingSafeEqual(given, expected) && at / 1000 < Number(until)
  }

  #mac(principalId: string, open: string): string {
    return createHmac('sha256', this.#secret).update(`login ${principalId} ${open}`).digest('base64url')
  }
}

const wrongClock = (wrong: WrongTime, at: number, cause?: unknown): Refusal =>
  clockRefusal('assertion_invalid', { ...wrong, what: 'The client assertion', at, cure: SET_CLOCK, cause })

/** Tells whether the first of `x5c` is the certificate that TLS has proven; the rest does not matter. */
function isLeaf(x5c: unknown, { certificate }: TlsPeer): boolean {
  return Array.isArray(x5c) && x5c[0] === certificate.raw.toString('base64')
}
