import { createPrivateKey, hash, type JsonWebKey, type KeyObject, randomUUID, sign } from 'node:crypto'
import { publicDpopJwk } from './dpop-key.ts'

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
