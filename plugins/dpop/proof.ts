import { hash } from 'node:crypto'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import type { UnknownRecord } from '../../db/support/json.ts'
import { clockRefusal, Refusal, SET_CLOCK, type WrongTime } from '../refusal.ts'
import { decodeBase64url, jwtSegments, segmentObject } from './jwt.ts'
import { type ProofKey, proofKey } from './key.ts'

/** The greatest age of a proof. Seconds. Longer widens the replay table. */
export const PROOF_AGE_S = 60
/** The lead of a client's clock, with a fresh nonce that vouches for it (RFC 9449 §11.1). Seconds. */
export const PROOF_AHEAD_S = 60
/** The lead of claims that no nonce vouches for, and of one replica's clock over another's. Seconds. */
const CLOCK_TOLERANCE_S = 10
const PROOF_MAX_BYTES = 8_192
const JTI_MAX_LENGTH = 256
const HTU_MAX_LENGTH = 2_048

export interface ProofTarget {
  readonly method: string
  /** Every URL that this request may be known by to its client: public base URLs and the path, normalised. */
  readonly urls: ReadonlySet<string>
  /** ms since the epoch. */
  readonly at: number
  /** The access token that came with the request, or null if none did. */
  readonly accessToken: string | null
  /** Returns whether a nonce is one of ours, for this kind of endpoint, and not stale. */
  readonly isFresh: (nonce: string) => boolean
}

/** A proof that holds. Whether it is new is not known yet: its `replayKey` must be claimed. */
export interface CheckedProof {
  /** RFC 7638 thumbprint of the key that signed. base64url. */
  readonly jkt: string
  /** SHA-256 over jkt and jti, hex: never the JWT's own text (docs/threats.md#t13). */
  readonly replayKey: string
  /** The instant after which no replica believes a copy. ms since the epoch. */
  readonly expiresAt: number
}

/**
 * Checks a DPoP proof against the request it came with (RFC 9449 §4.3, checks 2 to 12; the first is the
 * framing gate's). Refuses with `proof_invalid`, never saying which check failed, unless it is the client's
 * clock alone; with `use_dpop_nonce` when only the nonce is missing or stale (§9). Does NOT check that the
 * jti is new: the recorder of the decision claims `replayKey`.
 */
export function checkProof(proof: string, target: ProofTarget): CheckedProof {
  const segments = jwtSegments(proof, PROOF_MAX_BYTES)
  if (!segments) throw new Refusal('proof_invalid')
  const { head, body, signed, tail } = segments
  const found = knownProofKeys.get(head)
  const key = found ?? keyOf(head)
  const claims = segmentObject(body)
  const signature = decodeBase64url(tail)
  if (!key || !claims || !signature) throw new Refusal('proof_invalid')
  const { jti, iat, nonce } = claimsOf(claims, target)
  if (!key.verify(signed, signature)) throw new Refusal('proof_invalid')
  if (typeof nonce !== 'string' || !target.isFresh(nonce)) throw new Refusal('use_dpop_nonce')
  if (!found) remember(head, key)
  return {
    jkt: key.jkt,
    replayKey: hash('sha256', `${key.jkt} ${jti}`),
    expiresAt: Math.ceil((iat + PROOF_AGE_S + CLOCK_TOLERANCE_S) * 1000),
  }
}

/** The greatest number of headers that are remembered, and the length of one: RSA of 4096 bits has room. */
const KNOWN_MAX = 10_000
const KNOWN_LENGTH = 1_024

/**
 * The keys of proofs that held, by the header as it was written: every proof of a client has the same one. To
 * fill this, a client has signed each time, with a nonce of ours. Exported for the test of what enters.
 */
export const knownProofKeys = boundedCache<ProofKey>(KNOWN_MAX)

function remember(head: string, key: ProofKey): void {
  // A copy: a slice keeps the whole text.
  if (head.length <= KNOWN_LENGTH) knownProofKeys.set(Buffer.from(head).toString(), key)
}

// §4.3-4, -5, -7: the type, the algorithm, the key; and nothing that would have us fetch or understand more.
function keyOf(head: string): ProofKey | null {
  const header = segmentObject(head)
  if (!header) return null
  const { typ, alg, jwk, crit, jku, x5u } = header
  if (typ !== 'dpop+jwt' || crit !== undefined || jku !== undefined || x5u !== undefined) return null
  const key = proofKey(jwk)
  return key?.algorithms.some((name) => name === alg) ? key : null
}

// §4.3-3, -8, -9, -11, -12; RFC 7519 §4.1.4 and §4.1.5 for the two that DPoP does not ask for.
function claimsOf(claims: UnknownRecord, target: ProofTarget): { jti: string; iat: number; nonce: unknown } {
  const { jti, htm, htu, iat, exp, nbf, ath, nonce } = claims
  const nowS = target.at / 1000
  const holds =
    isText(jti, JTI_MAX_LENGTH) &&
    htm === target.method &&
    isText(htu, HTU_MAX_LENGTH) &&
    isInstant(iat) &&
    (exp === undefined || isInstant(exp)) &&
    (nbf === undefined || isInstant(nbf)) &&
    (target.accessToken === null || ath === hash('sha256', target.accessToken, 'base64url')) &&
    // Nearly every client signs the one spelling that needs no reading.
    (target.urls.has(htu) || target.urls.has(normalUrl(htu) ?? ''))
  if (!holds) throw new Refusal('proof_invalid')
  if (iat < nowS - PROOF_AGE_S || iat > nowS + PROOF_AHEAD_S) throw wrongClock('iat', iat, target)
  if (exp !== undefined && exp <= nowS - CLOCK_TOLERANCE_S) throw wrongClock('exp', exp, target)
  if (nbf !== undefined && nbf >= Math.floor(nowS) + PROOF_AHEAD_S) throw wrongClock('nbf', nbf, target)
  return { jti, iat, nonce }
}

const wrongClock = (claim: WrongTime['claim'], time: number, { at }: ProofTarget): Refusal =>
  clockRefusal('proof_invalid', { what: 'The DPoP proof', claim, time, at, cure: SET_CLOCK })

const isText = (value: unknown, max: number): value is string =>
  typeof value === 'string' && value !== '' && value.length <= max

/** A NumericDate may have a fraction (RFC 7519 §2). */
const isInstant = (value: unknown): value is number =>
  typeof value === 'number' && Math.abs(value) <= Number.MAX_SAFE_INTEGER

/** A URL in the form that its spellings share (RFC 9449 §4.3-9), or null. Drops query and fragment. */
export function normalUrl(text: string): string | null {
  const [, host = ''] = ABSOLUTE.exec(text) ?? []
  const url = URL.parse(text)
  if (!url || host === '') return null
  // The parser reads 127.1 as 127.0.0.1; a client that signed that has not named us.
  if (!host.startsWith('[') && host.toLowerCase() !== url.hostname) return null
  return `${url.origin}${url.pathname.replaceAll(/%[0-9A-Fa-f]{2}/g, normalizeEscape)}`
}

// Printable ASCII, a host that needs no unescaping, no user. The parser alone is looser: it would take a
// third slash, a backslash or an escaped look-alike of a name for something else than the client signed.
const ABSOLUTE = /^https?:\/\/([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::\d{0,5})?(?:[/?#][\x21-\x5b\x5d-\x7e]*)?$/i

function normalizeEscape(triplet: string): string {
  const character = String.fromCharCode(Number.parseInt(triplet.slice(1), 16))
  return /[A-Za-z0-9._~-]/.test(character) ? character : triplet.toUpperCase()
}
