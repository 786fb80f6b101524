import { createPrivateKey, hash, type JsonWebKey, type KeyObject, randomUUID, sign } from 'node:crypto'
import { publicDpopJwk } from './dpop-key.ts'
export type LowerCaseHeaders = Readonly<Record<string, string | string[] | undefined>>

/** A kind of nonce: the gateway hands out one at its token endpoint and another everywhere else. */
type NonceKind = 'token' | 'resource'

/** The latest nonce of each kind (RFC 9449 §8.2), and the time by the gateway's clock (§11.1). */
export interface NonceStore {
  readonly get: (door: NonceKind) => string | undefined
  /** Keeps nonce and time of an answer, of whatever status; returns false if there was no nonce. */
  readonly learn: (door: NonceKind, headers: LowerCaseHeaders) => boolean
  /** Returns how far the gateway's clock is ahead of this machine's, by its answers. ms. */
  readonly ahead: () => number
}

/**
 * The difference of two clocks that is let be: an answer says its second, and takes a while to come. It is
 * far less than what the gateway accepts. ms.
 */
const CLOCK_TOLERANCE_MS = 3_000

/** Keeps nonces and the gateway's time in memory. `local`: this machine's clock. */
export function keepNonces(local: () => number): NonceStore {
  const latest = new Map<NonceKind, string>()
  let ahead = 0
  return {
    get: (door) => latest.get(door),
    ahead: () => ahead,
    learn: (door, headers) => {
      const said = typeof headers.date === 'string' ? Date.parse(headers.date) : Number.NaN
      // The middle of the second that it names.
      const difference = said + 500 - local()
      if (Math.abs(difference - ahead) > CLOCK_TOLERANCE_MS) ahead = difference
      const nonce = headers['dpop-nonce']
      if (typeof nonce !== 'string' || nonce === '') return false
      latest.set(door, nonce)
      return true
    },
  }
}

export interface ProofRequest {
  readonly method: string
  /** The URL without query and fragment. */
  readonly url: string
  /** The access token that goes with it; null at the token endpoint. */
  readonly accessToken: string | null
  /** The gateway's latest nonce for this kind of endpoint; undefined before the first. */
  readonly nonce: string | undefined
  /** ms since the epoch. */
  readonly at: number
}

/** Makes a DPoP proof (RFC 9449 §4.2): a JWT with an id of its own, never two alike. */
export type ProofSigner = (request: ProofRequest) => string

/** Makes a signer with this key (ES256). Throws if the JWK is not a private key of the curve. */
export function proofSigner(jwk: JsonWebKey): ProofSigner {
  const key = createPrivateKey({ key: jwk, format: 'jwk' })
  const header = part({ typ: 'dpop+jwt', alg: 'ES256', jwk: publicDpopJwk(jwk) })
  return (request) => signText(key, `${header}.${part(claimsOf(request))}`)
}

function claimsOf({ method, url, accessToken, nonce, at }: ProofRequest): object {
  return {
    jti: randomUUID(),
    htm: method,
    htu: url,
    iat: Math.floor(at / 1000),
    ...(accessToken !== null && { ath: hash('sha256', accessToken, 'base64url') }),
    ...(nonce !== undefined && { nonce }),
  }
}

const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url')

function signText(key: KeyObject, text: string): string {
  const signature = sign('sha256', Buffer.from(text), { key, dsaEncoding: 'ieee-p1363' })
  return `${text}.${signature.toString('base64url')}`
}
