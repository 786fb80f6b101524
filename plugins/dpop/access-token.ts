import { hash } from 'node:crypto'
import { type CryptoKey, errors, type JWTPayload, jwtVerify } from 'jose'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import { isObject } from '../../db/support/json.ts'
import { clockSentence, Refusal } from '../refusal.ts'
import { audienceOf } from './audience.ts'
import { parseJwt, refusedTime } from './jwt.ts'

export interface TokenClaims {
  readonly principalId: string
  /** The thumbprint of the certificate that it is bound to. Lower-case hex SHA-256. */
  readonly thumbprint: string
  /** The thumbprint of the DPoP key that it is bound to, or null. base64url. */
  readonly jkt: string | null
  /** The capabilities it was narrowed to, or null if it was not. */
  readonly scope: readonly string[] | null
  /** The base URL of this service, or of one endpoint of it, that the token is for (RFC 8707). */
  readonly audience: string
}

export interface TokenVerifier {
  readonly isOurs: (token: string) => boolean
  /** Refuses with `token_invalid`. `at`: ms since the epoch. */
  readonly verify: (token: string, at: number) => Promise<TokenClaims>
}

export interface TokenVerifierDependencies {
  readonly issuer: () => string
  /** The issuer of people's tokens, which are refused here and go to no provider; null: there is none. */
  readonly peopleIssuer?: string | null
  /** The public base URLs: a token's `aud` must be one, or an MCP endpoint below one. */
  readonly baseUrls: () => readonly string[]
  /** Finds the public key of that id, or undefined. */
  readonly key: (kid: string) => Promise<CryptoKey | undefined>
}

const TOKEN_MAX_BYTES = 8_192
/** The tokens that are remembered because their signature held. */
const CACHE_MAX = 10_000

interface RememberedToken<Claims> {
  readonly claims: Claims
  /** s since the epoch. */
  readonly exp: number
}

/** One kind of tokens: the claims that each has, and their meaning. */
interface TokenKind<Claims> {
  readonly required: readonly string[]
  /** Null: the token is for somebody else. */
  readonly read: (payload: JWTPayload) => Claims | null
  /** Ends the sentence about one whose time is over. */
  readonly cure: string
}

/** Verified tokens of one kind. */
export interface SignedTokens<Claims> {
  /** Refuses with `token_invalid`. `at`: ms since the epoch. A promise only if the token is not remembered. */
  readonly verify: (token: string, at: number) => Claims | Promise<Claims>
}

/**
 * Verifies access tokens: JWT, `at+jwt` (RFC 9068), ES256, by one of our keys, for us, in its time, bound to
 * a certificate (RFC 8705 §3.1). Does NOT ask whether it is for this very endpoint: `dpop` does; nor whether
 * the principal still exists or holds anything: the pin and the gate do.
 */
export function tokenVerifier(sources: TokenVerifierDependencies): TokenVerifier {
  const tokens = signedTokens(sources, {
    required: ['sub', 'exp', 'iat', 'jti', 'cnf'],
    read: (payload) => {
      const claims = claimsOf(payload)
      return audienceOf(claims.audience, sources.baseUrls()) === claims.audience ? claims : null
    },
    cure: NEW_TOKEN,
  })
  return {
    isOurs: (token) => {
      const issuer = parseJwt(token, TOKEN_MAX_BYTES)?.claims.iss
      return issuer !== undefined && (issuer === sources.issuer() || issuer === sources.peopleIssuer)
    },
    verify: async (token, at) => tokens.verify(token, at),
  }
}

/** Verifies tokens of one kind. One that held is remembered by its digest until it expires. */
export function signedTokens<Claims>(
  sources: Pick<TokenVerifierDependencies, 'issuer' | 'key'>,
  kind: TokenKind<Claims>,
): SignedTokens<Claims> {
  const known = boundedCache<RememberedToken<Claims>>(CACHE_MAX)
  const checked = async (digest: string, token: string, at: number): Promise<Claims> => {
    const made = await check(token, at, sources, kind)
    known.set(digest, made)
    return made.claims
  }
  return {
    verify: (token, at) => {
      const digest = hash('sha256', token)
      const found = known.get(digest)
      return found && at / 1000 < found.exp ? found.claims : checked(digest, token, at)
    },
  }
}

async function check<Claims>(
  token: string,
  at: number,
  { issuer, key }: Pick<TokenVerifierDependencies, 'issuer' | 'key'>,
  { required, read, cure }: TokenKind<Claims>,
): Promise<RememberedToken<Claims>> {
  if (!parseJwt(token, TOKEN_MAX_BYTES)) throw new Refusal('token_invalid')
  try {
    const { payload } = await jwtVerify(
      token,
      async ({ kid = '' }) => {
        const found = await key(kid)
        if (found) return found
        throw new errors.JWKSNoMatchingKey()
      },
      {
        algorithms: ['ES256'],
        typ: 'at+jwt',
        issuer: issuer(),
        currentDate: new Date(at),
        requiredClaims: [...required],
      },
    )
    const claims = read(payload)
    if (claims) return { claims, exp: payload.exp ?? 0 }
    throw new errors.JWTClaimValidationFailed('it is for somebody else', payload, 'aud', 'check_failed')
  } catch (cause) {
    // Unreadable keys of ours are no fault of the token.
    if (!(cause instanceof errors.JOSEError)) throw cause
    const wrong = refusedTime(cause)
    if (!wrong) throw new Refusal('token_invalid', { cause })
    const message = `${clockSentence({ ...wrong, what: 'The access token', at })} ${cure}`
    throw new Refusal('token_invalid', { cause, message })
  }
}

/** The cure for a time that is of our own writing: no clock of the client's is to blame. */
const NEW_TOKEN = 'Request a new one at /v1/auth/token.'

function claimsOf({ sub = '', aud = '', cnf, scope, narrowed }: JWTPayload): TokenClaims {
  // Signed by us: proxy/auth made `cnf`.
  const { 'x5t#S256': x5t, jkt = null } = isObject(cnf) ? cnf : {}
  if (typeof x5t !== 'string') throw new TypeError('a token of ours is not bound to a certificate')
  if (jkt !== null && typeof jkt !== 'string') throw new TypeError('a token of ours is bound to no key')
  return {
    principalId: sub,
    thumbprint: Buffer.from(x5t, 'base64url').toString('hex'),
    jkt,
    scope:
      narrowed === true && typeof scope === 'string'
        ? scope.split(' ').filter((token) => token !== '')
        : null,
    // One text, as proxy/auth put it there.
    audience: String(aud),
  }
}
