import { hash } from 'node:crypto'
import type { JWTPayload } from 'jose'
import { isObject } from '../../db/support/json.ts'
import { type SignedTokens, signedTokens, type TokenVerifierDependencies } from '../dpop/access-token.ts'
import { audienceOf } from '../dpop/audience.ts'

/** The content of a token of the door of people. */
export interface PeopleTokenClaims {
  readonly grant: string
  /** The pseudonym of its user. */
  readonly subject: string
  /** SHA-256 of the client's id. Lower-case hex. */
  readonly clientSha256: string
  /** The thumbprint of the key that it is bound to, or null. base64url. */
  readonly jkt: string | null
  /** The capabilities that it names, or null: `mcp` and `llm` stand for all that its user holds. */
  readonly scope: readonly string[] | null
  readonly audience: string
}

/** The scopes that are no capabilities. */
const ALL_HELD: ReadonlySet<string> = new Set(['mcp', 'llm', 'openid', 'offline_access'])

/** Verifies tokens of the door of people as those of the main listener are verified. */
export const peopleTokens = (sources: TokenVerifierDependencies): SignedTokens<PeopleTokenClaims> =>
  signedTokens(sources, {
    required: ['sub', 'exp', 'iat', 'jti', 'client_id', 'grant'],
    read: (payload) => claimsOf(payload, sources.baseUrls()),
    cure: 'Refresh it, or sign in again.',
  })

function claimsOf(
  { sub = '', aud = '', cnf, scope, client_id: client, grant }: JWTPayload,
  baseUrls: readonly string[],
): PeopleTokenClaims | null {
  const { jkt = null } = isObject(cnf) ? cnf : {}
  const audience = typeof aud === 'string' ? audienceOf(aud, baseUrls) : null
  if (typeof grant !== 'string' || typeof client !== 'string' || audience === null) return null
  if (jkt !== null && typeof jkt !== 'string') return null
  const named = (typeof scope === 'string' ? scope : '')
    .split(' ')
    .filter((one) => one !== '' && !ALL_HELD.has(one))
  return {
    ...{ grant, subject: sub, jkt, audience },
    clientSha256: hash('sha256', client),
    scope: named.length === 0 ? null : named,
  }
}
