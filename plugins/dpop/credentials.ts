import type { IncomingHttpHeaders } from 'node:http'
import { Refusal } from '../refusal.ts'

/** An access token of ours, as a request brought it. */
export interface Credentials {
  readonly scheme: 'dpop' | 'bearer'
  readonly token: string
}

// The scheme is case-insensitive, then one or more spaces and a token68 (RFC 9110 §11.4).
const AUTHORIZATION = /^([A-Za-z]+) +([A-Za-z0-9._~+/-]+=*)$/

/**
 * Reads the access token in `Authorization`, and nowhere else (SECURITY D-27), or null where there is none of
 * ours: what comes as `Bearer` and is not ours is a vendor's key that some SDK insists on, and is ignored.
 * Refuses with `token_invalid` what comes as `DPoP` and is no token.
 */
export function credentialsOf(
  { authorization }: IncomingHttpHeaders,
  isOurs: (token: string) => boolean,
): Credentials | null {
  if (authorization === undefined) return null
  const [, scheme = '', token = ''] = AUTHORIZATION.exec(authorization) ?? []
  if (/^dpop/i.test(authorization)) {
    if (scheme.toLowerCase() !== 'dpop') throw new Refusal('token_invalid')
    return { scheme: 'dpop', token }
  }
  return scheme.toLowerCase() === 'bearer' && isOurs(token) ? { scheme: 'bearer', token } : null
}
