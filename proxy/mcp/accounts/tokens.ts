import { createPrivateKey, hash, type KeyObject, randomUUID, webcrypto } from 'node:crypto'
import { type JWK, SignJWT } from 'jose'
import * as client from 'openid-client'
import type { AccountRequest } from './accounts.ts'
import { ConnectRefused, IssuerUnavailable } from './accounts.ts'
import { type AccountTokens, MAX_TOKEN_CHARACTERS } from './vault.ts'

const ALGORITHM = 'ES256'
const CURVE = { name: 'ECDSA', namedCurve: 'P-256' }
/** RFC 6750 §2.1, and what else may stand in a header. */
const TOKEN = /^[\x21-\x7e]+$/
const SCOPE = /^[\x21\x23-\x5b\x5d-\x7e]{1,256}$/
const MAX_SCOPES = 100
/** An error code that may be repeated. */
const ERROR_CODE = /^[a-z0-9_.:/-]{1,64}$/i
const MAX_LIFE_S = 10 * 365 * 86_400

/** The key of an account, as the library and its store have it. */
export interface AccountKey {
  readonly pair: webcrypto.CryptoKeyPair
  readonly jwk: AccountTokens['key']
}

/** Makes a key for an account; null: the issuer binds tokens to none. */
export async function newAccountKey(server: client.ServerMetadata): Promise<AccountKey | null> {
  if (server.dpop_signing_alg_values_supported?.includes(ALGORITHM) !== true) return null
  const pair = await client.randomDPoPKeyPair(ALGORITHM, { extractable: true })
  const { kty, crv = '', x = '', y = '', d = '' } = await webcrypto.subtle.exportKey('jwk', pair.privateKey)
  return kty === 'EC' ? { pair, jwk: { kty, crv, x, y, d } } : null
}

export async function accountKeyOf({ key }: Pick<AccountTokens, 'key'>): Promise<AccountKey | null> {
  if (key === null) return null
  const { d, ...open } = key
  const [privateKey, publicKey] = await Promise.all([
    webcrypto.subtle.importKey('jwk', { ...key }, CURVE, false, ['sign']),
    webcrypto.subtle.importKey('jwk', { ...open }, CURVE, true, ['verify']),
  ])
  return { pair: { privateKey, publicKey }, jwk: key }
}

/** The members of an answer of a token endpoint that are kept. */
export interface GivenTokens {
  readonly access: string
  readonly refresh: string | null
  readonly scopes: readonly string[]
  /** ms since the epoch; null: it does not say. */
  readonly expiresAt: number | null
  readonly bound: boolean
  /** The subject of an ID token; null: there is none. */
  readonly subject: string | null
}

type TokenAnswer = Awaited<ReturnType<typeof client.refreshTokenGrant>>

/** Reads an answer of a token endpoint. `asked`: the scopes, if it does not say which it has granted. */
export function givenTokens(answer: TokenAnswer, asked: readonly string[], at: number): GivenTokens {
  const { access_token: access, refresh_token: refresh, expires_in: lifeS, scope } = answer
  const scopes = scope === undefined ? asked : scope.split(' ').filter((one) => SCOPE.test(one))
  if (!isToken(access) || (refresh !== undefined && !isToken(refresh)))
    throw new IssuerUnavailable('its tokens are longer than 8 KiB, or cannot stand in a header')
  return {
    ...{ access, refresh: refresh ?? null, scopes: [...new Set(scopes)].slice(0, MAX_SCOPES).toSorted() },
    expiresAt: lifeS === undefined ? null : at + Math.min(Math.max(lifeS, 0), MAX_LIFE_S) * 1000,
    bound: answer.token_type === 'dpop',
    subject: answer.claims()?.sub ?? null,
  }
}

const isToken = (value: string): boolean => value.length <= MAX_TOKEN_CHARACTERS && TOKEN.test(value)

/** The code of an error that an issuer has answered with; null: it has answered with none. */
export function oauthErrorOf(error: unknown): string | null {
  // RFC 6749 §5.2: the one error that comes with a challenge.
  if (error instanceof client.WWWAuthenticateChallengeError) return 'invalid_client'
  const isAnswer =
    error instanceof client.ResponseBodyError || error instanceof client.AuthorizationResponseError
  if (!isAnswer) return null
  return ERROR_CODE.test(error.error) ? error.error : 'an error'
}

/** Says an error of the library without what it quotes: a token may be there. */
export function issuerError(error: unknown, issuer: string): Error {
  for (let at = error; at instanceof Error; at = at.cause) if (at instanceof IssuerUnavailable) return at
  const code = oauthErrorOf(error)
  if (code !== null) return new ConnectRefused(`${issuer} answered ${code}`)
  return new IssuerUnavailable(`${issuer} gave an answer that is not valid`)
}

/** The keys of proofs, by the tokens that they were read from. */
const keys = new WeakMap<object, KeyObject>()

/** Makes the headers of one request to an MCP server (RFC 6750; RFC 9449 §7.1). `at`: ms since the epoch. */
export async function authorizationHeaders(
  tokens: Pick<AccountTokens, 'access' | 'key'>,
  { method, url, nonce }: AccountRequest,
  at: number,
): Promise<Readonly<Record<string, string>>> {
  const { access, key: jwk } = tokens
  if (jwk === null) return { authorization: `Bearer ${access}` }
  const { kty, crv, x, y } = jwk
  const known = keys.get(jwk) ?? createPrivateKey({ key: { ...jwk }, format: 'jwk' })
  keys.set(jwk, known)
  const claims = {
    ...{ htm: method, htu: url.replace(/[?#].*$/s, ''), jti: randomUUID() },
    ...{ ath: hash('sha256', access, 'base64url'), ...(nonce !== undefined && { nonce }) },
  }
  const proof = await new SignJWT(claims)
    .setProtectedHeader({ alg: ALGORITHM, typ: 'dpop+jwt', jwk: { kty, crv, x, y } satisfies JWK })
    .setIssuedAt(Math.floor(at / 1000))
    .sign(known)
  return { authorization: `DPoP ${access}`, dpop: proof }
}
