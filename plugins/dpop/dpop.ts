import { createHmac, timingSafeEqual } from 'node:crypto'
import type { IncomingHttpHeaders } from 'node:http'
import { type DpopMode, proofFault } from '../../db/ledger/authority/rule.ts'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import type { AccessToken, DpopProof, Principal } from '../facts.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import type { TokenClaims, TokenVerifier } from './access-token.ts'
import { type CheckedProof, checkProof, normalUrl } from './proof.ts'

export type { DpopMode } from '../../db/ledger/authority/rule.ts'

export interface DpopDependencies {
  readonly mode: DpopMode
  /** True: a registered principal is never let through without a proof (docs/threats.md#d-35). */
  readonly noDowngrade: boolean
  /** The configuration in force, for calls that another one has let through. */
  readonly inForce: () => { readonly dpopMode: DpopMode; readonly noDowngrade: boolean }
  readonly nonces: NonceIssuer
  /** Base URLs that clients may sign in `htu`; never taken from the Host header. */
  readonly baseUrls: () => readonly string[]
  readonly tokens: TokenVerifier
}

interface TokenCredentials {
  readonly scheme: 'dpop' | 'bearer'
  readonly token: string
}

// The scheme is case-insensitive, then one or more spaces and a token68 (RFC 9110 §11.4).
const AUTHORIZATION = /^([A-Za-z]+) +([A-Za-z0-9._~+/-]+=*)$/
const DPOP = /^dpop/i

interface DpopFacts {
  readonly proof: DpopProof | null
  readonly token: AccessToken | null
}

type DpopNeeds = Arrival & { readonly principal: Principal }

/**
 * Checks sender-constrained credentials (RFC 9449 §7, RFC 8705 §3): a token of ours must be bound to this
 * connection's certificate and, if it is bound to a key too, come with a proof by that key; a proof without a
 * token must be by the principal's registered key, if it has one. Refuses with `token_invalid`,
 * `proof_invalid`, `use_dpop_nonce` or `proof_required`. Does NOT check that a proof is new: the recorder
 * claims its `replayKey`.
 */
export function dpop(sources: DpopDependencies): Plugin<DpopNeeds, DpopFacts> {
  const urls = targetUrls(sources.baseUrls)
  const withToken = async (facts: DpopNeeds, credentials: TokenCredentials): Promise<DpopFacts> => {
    const claims = await sources.tokens.verify(credentials.token, facts.at)
    checkBinding(claims, credentials, facts)
    checkAudience(claims, facts, sources.baseUrls())
    const proof = proofOf(facts, credentials.token, claims, sources, urls)
    return { proof, token: { scope: claims.scope, bound: claims.jkt !== null } }
  }
  return {
    name: 'dpop',
    admit: (facts) => {
      if (sources.mode !== 'off') facts.answer['dpop-nonce'] = sources.nonces.current('resource', facts.at)
      const credentials = credentialsOf(facts.headers, sources.tokens.isOurs)
      if (credentials) return withToken(facts, credentials)
      return { proof: proofOf(facts, null, null, sources, urls), token: null }
    },
    // A proof or a token that has become too old since is not a revoked one: both are for the beginning of a
    // call.
    still: ({ principal, proof, token }) => {
      const { dpopMode, noDowngrade } = sources.inForce()
      const fault = proofFault(
        dpopMode,
        noDowngrade,
        proof?.jkt ?? null,
        keysOf(principal),
        token?.bound ?? false,
      )
      if (fault) throw new Refusal(fault)
      return {}
    },
  }
}

/**
 * Reads our access token in `Authorization`, or null. Refuses with `token_invalid` (docs/threats.md#d-27).
 */
function credentialsOf(
  { authorization }: IncomingHttpHeaders,
  isOurs: (token: string) => boolean,
): TokenCredentials | null {
  if (authorization === undefined) return null
  const [, scheme = '', token = ''] = AUTHORIZATION.exec(authorization) ?? []
  if (DPOP.test(authorization)) {
    if (scheme.toLowerCase() !== 'dpop') throw new Refusal('token_invalid')
    return { scheme: 'dpop', token }
  }
  return scheme.toLowerCase() === 'bearer' && isOurs(token) ? { scheme: 'bearer', token } : null
}

/**
 * docs/threats.md#m-01, docs/threats.md#d-22, docs/threats.md#d-23, docs/threats.md#d-34: the token's
 * principal, its certificate, and the scheme that its key demands.
 */
function checkBinding(
  claims: TokenClaims,
  { scheme }: TokenCredentials,
  { principal, peer }: DpopNeeds,
): void {
  const holds =
    claims.principalId === principal.id &&
    claims.thumbprint === peer?.thumbprint &&
    (scheme === 'dpop') === (claims.jkt !== null)
  if (!holds) throw new Refusal('token_invalid')
}

/** RFC 8707 §2: a token that was asked for one path opens that one and those below it, by either name. */
export function checkAudience(
  { audience }: Pick<TokenClaims, 'audience'>,
  { method, path }: Pick<Arrival, 'method' | 'path'>,
  baseUrls: readonly string[],
): void {
  // The other name of /v1/mcp/{resource}, which is none of a GET.
  const named =
    method === 'GET' || method === 'HEAD' ? path : path.replace(/^\/v1\/([^/]+)\/mcp$/, '/v1/mcp/$1')
  const holds = baseUrls.some((base) => `${base}${named}/`.startsWith(`${audience}/`))
  if (!holds) throw new Refusal('token_invalid')
}

function proofOf(
  facts: DpopNeeds,
  accessToken: string | null,
  claims: TokenClaims | null,
  { mode, noDowngrade, nonces }: DpopDependencies,
  urls: (path: string) => ReadonlySet<string>,
): DpopProof | null {
  const { headers, principal, method, path, at } = facts
  if (mode === 'off') return null
  const { dpop: sent } = headers
  if (sent === undefined) {
    if (claims?.jkt) throw new Refusal('token_invalid')
    const fault = proofFault(mode, noDowngrade, null, keysOf(principal), false)
    if (fault) throw new Refusal(fault)
    return null
  }
  const isFresh = (nonce: string): boolean => nonces.isFresh('resource', nonce, at)
  // Node joins repeated headers of this name to one text, which is then no proof.
  const proof = checkProof(String(sent), { method, urls: urls(path), at, accessToken, isFresh })
  checkKey(proof, claims, principal, { mode, noDowngrade })
  return proof
}

// The token's key and the registered one differ for clients that log in with an ephemeral key
// (docs/protocol.md#python-helper). A thief of a certificate can do the same with a key of their own, so
// `noDowngrade` wants the registered one here too.
function checkKey(
  { jkt }: CheckedProof,
  claims: TokenClaims | null,
  principal: Principal,
  { mode, noDowngrade }: Pick<DpopDependencies, 'mode' | 'noDowngrade'>,
): void {
  if (claims?.jkt && claims.jkt !== jkt) throw new Refusal('token_invalid')
  const fault = proofFault(mode, noDowngrade, jkt, keysOf(principal), Boolean(claims?.jkt))
  if (fault === 'proof_required')
    throw new Refusal(fault, { message: 'No DPoP key is registered for this principal.' })
  if (fault) throw new Refusal(fault)
}

const NO_KEYS: readonly string[] = []

const keysOf = ({ dpopJkt, previousDpopJkt }: Principal): readonly string[] =>
  dpopJkt === null && previousDpopJkt === null
    ? NO_KEYS
    : [dpopJkt, previousDpopJkt].filter((jkt) => jkt !== null)

/** Most paths whose URLs are remembered. A path may have a variable segment, which callers choose. */
const CACHE_MAX = 256

export function targetUrls(baseUrls: () => readonly string[]): (path: string) => ReadonlySet<string> {
  const known = boundedCache<ReadonlySet<string>>(CACHE_MAX)
  return (path) => {
    const found = known.get(path)
    if (found) return found
    const urls = new Set(baseUrls().flatMap((base) => normalUrl(base + path) ?? []))
    // None while the listeners are opening: that is not to be remembered.
    if (urls.size > 0) known.set(path, urls)
    return urls
  }
}

/** The time that one nonce is handed out for. The one before it is still accepted. Seconds. */
const STEP_S = 300

/** The endpoint that a nonce is for (docs/threats.md#d-13). */
export type NonceEndpoint = 'token' | 'resource'

/** Stateless nonces (RFC 9449 §8, §9): an HMAC over the time step. 132 bits, base64url. */
export class NonceIssuer {
  readonly #secret: Buffer
  readonly #current = new Map<NonceEndpoint, { readonly step: number; readonly nonce: string }>()

  /** `secret`: at least 32 random bytes. */
  constructor(secret: Buffer) {
    this.#secret = secret
  }

  current(use: NonceEndpoint, at: number): string {
    const step = stepOf(at)
    const known = this.#current.get(use)
    if (known?.step === step) return known.nonce
    const nonce = this.#of(use, step)
    this.#current.set(use, { step, nonce })
    return nonce
  }

  /** Returns whether a nonce is of this step, the one before, or the next, by a replica's clock. */
  isFresh(use: NonceEndpoint, nonce: string, at: number): boolean {
    const step = stepOf(at)
    return (
      same(nonce, this.current(use, at)) || [step - 1, step + 1].some((n) => same(nonce, this.#of(use, n)))
    )
  }

  #of(use: NonceEndpoint, step: number): string {
    return createHmac('sha256', this.#secret).update(`${use} ${step}`).digest('base64url').slice(0, 22)
  }
}

const stepOf = (at: number): number => Math.floor(at / 1000 / STEP_S)

function same(given: string, expected: string): boolean {
  const a = Buffer.from(given)
  const b = Buffer.from(expected)
  return a.length === b.length && timingSafeEqual(a, b)
}
