import { HOP_BY_HOP } from '../../egress/hop-by-hop.ts'
import { READ_MEMBERS } from '../dialects/routing-members.ts'

export type PassedKind = 'pass_headers' | 'pass_answer_headers' | 'pass_query'

/** A name that may stand in a list, or the beginning of names, at least four characters, and a star. */
export const PASSED_HEADER = /^[A-Za-z0-9!#$%&'+.^_`|~-]{1,128}$|^[A-Za-z0-9!#$%&'+.^_`|~-]{4,127}\*$/
export const PASSED_QUERY = /^[A-Za-z0-9._~$[\]-]{1,128}$/

/** Words of names that carry credentials, at the end of a part of the name: `x-goog-api-key`, `accessToken`. */
const CREDENTIAL_ENDS = [
  ...['auth', 'authenticate', 'authentication', 'authorization', 'cookies?2?', 'credentials?', 'keys?'],
  // Tokens that are counted (`remaining-tokens`) are none.
  ...['passphrase', 'passwd', 'passwords?', 'pwd', 'secrets?', 'signature', 'token'],
]
const CREDENTIAL = new RegExp(`(?:${CREDENTIAL_ENDS.join('|')})$|^(?:assertion|bearer|jwt|pass|saml|sig)$`)
/** Credentials in a query alone. */
const QUERY_CREDENTIAL = /^(?:code|session|sid|ticket)$/
/** It tells parts of a prompt's cache apart, and opens nothing. */
const CACHE_KEY = /(?<=\bcache-)keys?\b/

/** Headers of the connection, of the message's framing, and of those who speak of either. */
const CONNECTION: readonly RegExp[] = [new RegExp(`^(?:${HOP_BY_HOP.join('|')})$`), /^(?:proxy-|sec-)/]
const OF_A_REQUEST: readonly RegExp[] = [
  ...CONNECTION,
  /^(?:accept-encoding|cdn-loop|date|expect|forwarded|host|max-forwards|origin|range|referer|via)$/,
  /^(?:http2-settings|x-real-ip|x-client-ip|x-host|x-original-ur[il]|x-rewrite-url|true-client-ip)$/,
  /^(?:content-|if-|x-forwarded|x-envoy-|x-ssl-|ssl-client|client-cert|cf-connecting)/,
  /http-method|client-cert|method-override$/,
]
/** Headers by which an answer rules a connection, a browser, or a proxy before this gateway. */
const OF_AN_ANSWER: readonly RegExp[] = [
  ...CONNECTION,
  /^(?:alt-svc|location|refresh|link|age|date|via|vary|etag|expires|pragma|last-modified|accept-ranges)$/,
  /^(?:clear-site-data|expect-ct|nel|origin-trial|public-key-pins|report-to|service-worker-allowed)$/,
  /^(?:permissions-policy|referrer-policy|reporting-endpoints|sourcemap|x-sourcemap|x-sendfile)$/,
  /^(?:access-control-|content-(?!type$|language$)|cross-origin-|document-|origin-agent|x-accel-)/,
  /^(?:x-lighttpd-|x-permitted-|x-reproxy-|x-xss-|x-dns-prefetch)/,
]

/** Headers that this gateway reads or writes itself. */
const OURS =
  /^(?:audit-receipt|dpop|if-match|if-rehearsed|last-event-id|mcp|(?:x-)?(?:mcp-proxy|sallyport))(?:-|$)|^x-admin/
const OURS_ONE_WAY: Readonly<Record<PassedKind, readonly string[]>> = {
  pass_headers: ['idempotency-key', 'x-principal', 'x-spiffe-id'],
  pass_answer_headers: [
    'cache-control',
    'request-id',
    'strict-transport-security',
    'x-content-type-options',
    'x-frame-options',
    'x-request-id',
    'x-upstream-request-id',
  ],
  pass_query: [],
}

/** Says why a name is never passed on; null: it may be. Case, and `_` in place of `-`, make no difference. */
export function passingObjection(kind: PassedKind, name: string): string | null {
  const plain = name.toLowerCase().replaceAll('_', '-').replace(/\*$/, '')
  const parts = plain.replace(CACHE_KEY, '').split(/[^a-z0-9]+/)
  const isQuery = kind === 'pass_query'
  if (OURS_ONE_WAY[kind].includes(plain) || (!isQuery && OURS.test(plain)))
    return 'is a header of this gateway itself'
  if (parts.some((part) => CREDENTIAL.test(part) || (isQuery && QUERY_CREDENTIAL.test(part))))
    return 'may carry a credential: a credential goes into api_key or headers'
  if (isQuery) return READ_MEMBERS.includes(plain) ? 'is what a call is routed by' : null
  const others = kind === 'pass_headers' ? OF_A_REQUEST : OF_AN_ANSWER
  return others.some((pattern) => pattern.test(plain))
    ? 'belongs to the connection, or rules what others do with the answer'
    : null
}

/** Tells of a name, in lower case, whether a list passes it on. */
export type IsPassedName = (name: string) => boolean

/** Makes the test of a provider's list; null for an empty one. */
export function passedNames(kind: PassedKind, listed: readonly string[]): IsPassedName | null {
  if (listed.length === 0) return null
  const names = new Set(listed.map((name) => name.toLowerCase()))
  const prefixes = [...names].flatMap((name) => (name.endsWith('*') ? [name.slice(0, -1)] : []))
  return (name) =>
    names.has(name) ||
    (prefixes.some((prefix) => name.startsWith(prefix)) && passingObjection(kind, name) === null)
}
