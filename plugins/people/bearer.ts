import { isProofEnough, type MinProof } from '../../db/ledger/authority/rule.ts'
import type { GrantHolder } from '../../db/people/grants.ts'
import type { SignedTokens } from '../dpop/access-token.ts'
import { isMcpDoor } from '../dpop/audience.ts'
import { checkAudience, type NonceIssuer, targetUrls } from '../dpop/dpop.ts'
import { PROOF_ALGORITHMS } from '../dpop/key.ts'
import { checkProof } from '../dpop/proof.ts'
import type { AccessToken, CallGrant, CapabilityDemand, DpopProof, Principal } from '../facts.ts'
import { commitmentsBy, type KeyLookup, type PinnedCaller } from '../pin/pin.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal, type RefusalReason } from '../refusal.ts'
import { type MonotonicClock, monotonicClock } from '../secrets/throttle.ts'
import { clientDetail } from './rows.ts'
import type { PeopleTokenClaims } from './token.ts'

/** Asks the database, now, for a grant and its user. Never a cache: its end holds at once. */
export type GrantLookup = (id: string) => GrantHolder | undefined | Promise<GrantHolder | undefined>

/** The door of people: its one URL, without a slash at its end. */
export interface BearerDoor {
  readonly url: () => string
  readonly tokens: SignedTokens<PeopleTokenClaims>
}

interface BearerDependencies extends BearerDoor {
  readonly lookup: GrantLookup
  readonly keys: KeyLookup
  readonly now?: MonotonicClock
}

interface SentToken {
  readonly scheme: 'bearer' | 'dpop'
  readonly text: string
}

// The scheme is case-insensitive, then one or more spaces and a token68 (RFC 9110 §11.4).
const AUTHORIZATION = /^(bearer|dpop) +([A-Za-z0-9._~+/-]+=*)$/i

/**
 * Finds the user by the access token and its grant, in the place of `pin` at the door of people
 * (docs/people.md). The grant and the user are asked of the database on each call. Refuses with
 * `token_required`, `token_invalid` or `principal_deactivated`, and tells where to sign in (RFC 9728). Does
 * NOT ask for the proof of a key: {@link bearerProof} does.
 */
export function bearer(sources: BearerDependencies): Plugin<Arrival, PinnedCaller> {
  const { now = monotonicClock } = sources
  const found = (
    held: GrantHolder | undefined,
    claims: PeopleTokenClaims,
    arrival: Arrival,
    pinnedAt: number,
  ) => {
    const holder = grantedHolder(held, arrival, sources)
    const { grant } = holder
    const isOfGrant =
      claims.subject === holder.principal.principal_ref &&
      claims.clientSha256 === grant.client.idSha256 &&
      claims.jkt === grant.jkt
    if (!isOfGrant) throw refusedToken('token_invalid', arrival, sources)
    const caller = { ...callerOf(holder, scopeWithin(claims.scope, grant.scope)), pinnedAt }
    const { ref } = caller.principal
    const key = sources.keys.known.get(ref) ?? sources.keys.open(ref)
    return key instanceof Promise
      ? key.then((opened) => ({ ...caller, commitments: commitmentsBy(opened, arrival.id) }))
      : { ...caller, commitments: commitmentsBy(key, arrival.id) }
  }
  const asked = (claims: PeopleTokenClaims, arrival: Arrival): PinnedCaller | Promise<PinnedCaller> => {
    const pinnedAt = now()
    const held = sources.lookup(claims.grant)
    return held instanceof Promise
      ? held.then((one) => found(one, claims, arrival, pinnedAt))
      : found(held, claims, arrival, pinnedAt)
  }
  return {
    name: 'bearer',
    admit: (arrival) => {
      const claims = verifiedToken(arrival, sources)
      return claims instanceof Promise ? claims.then((read) => asked(read, arrival)) : asked(claims, arrival)
    },
    // A token whose minutes are over since was good for the beginning of its call; a grant that ended was not.
    still: async (facts) => {
      const { grant, principal, candidate } = facts
      const holder = grantedHolder(grant && (await sources.lookup(grant.id)), facts, sources)
      const { principal: is, candidate: judged } = callerOf(holder, null)
      if (is.id !== principal.id || is.ref !== principal.ref)
        throw refusedToken('token_invalid', facts, sources)
      return { principal: is, ...(judged !== candidate && { candidate: judged }) }
    },
  }
}

function sentToken({ headers: { authorization } }: Arrival): SentToken | null {
  const [, scheme = '', text = ''] = AUTHORIZATION.exec(authorization ?? '') ?? []
  return text === '' ? null : { scheme: scheme.toLowerCase() === 'dpop' ? 'dpop' : 'bearer', text }
}

function verifiedToken(arrival: Arrival, door: BearerDoor): PeopleTokenClaims | Promise<PeopleTokenClaims> {
  const sent = sentToken(arrival)
  if (!sent)
    throw refusedToken(
      arrival.headers.authorization === undefined ? 'token_required' : 'token_invalid',
      arrival,
      door,
    )
  const fits = (claims: PeopleTokenClaims): PeopleTokenClaims => {
    if ((claims.jkt !== null) !== (sent.scheme === 'dpop')) throw refusedToken('token_invalid', arrival, door)
    checkAudience(claims, arrival, [door.url()])
    return claims
  }
  const saying = (error: unknown): never => {
    throw error instanceof Refusal ? refusedToken('token_invalid', arrival, door, error) : error
  }
  try {
    const claims = door.tokens.verify(sent.text, arrival.at)
    return claims instanceof Promise ? claims.then(fits).catch(saying) : fits(claims)
  } catch (error) {
    return saying(error)
  }
}

function grantedHolder(held: GrantHolder | undefined, arrival: Arrival, door: BearerDoor): GrantHolder {
  if (!held || arrival.at >= held.grant.expiresAt) throw refusedToken('token_invalid', arrival, door)
  if (!held.principal.is_active) throw refusedToken('principal_deactivated', arrival, door)
  return held
}

function callerOf(
  { grant, principal: user }: GrantHolder,
  scope: readonly string[] | null,
): Omit<PinnedCaller, 'commitments' | 'pinnedAt'> & { readonly grant: CallGrant } {
  return {
    principal: {
      ...{ id: user.principal_id, ref: user.principal_ref, type: user.principal_type },
      ...{ capabilities: user.capabilities, revision: user.authority_revision },
      // Keys that were registered are of certificates: here the grant has its own.
      ...{ dpopJkt: null, previousDpopJkt: null, inGrace: false },
    },
    candidate: user.candidate,
    grant: { id: grant.id, bound: grant.bound, jkt: grant.jkt, scope, client: clientDetail(grant) },
  }
}

/** Narrows one by the other; null: all that the user holds. */
function scopeWithin(
  asked: readonly string[] | null,
  granted: readonly string[] | null,
): readonly string[] | null {
  if (asked === null || granted === null) return asked ?? granted
  return asked.filter((one) => granted.includes(one))
}

/** A 401 that tells where to sign in: two challenges (RFC 9728 §5.1, RFC 9449 §7.1). */
function refusedToken(
  reason: RefusalReason,
  { path }: Pick<Arrival, 'path'>,
  { url }: Pick<BearerDoor, 'url'>,
  cause?: Refusal,
): Refusal {
  const door = isMcpDoor(path) ? path : ''
  const metadata = `resource_metadata="${url()}/.well-known/oauth-protected-resource${door}"`
  const error = reason === 'token_required' ? '' : 'error="invalid_token", '
  const scope = `scope="${door === '' ? 'llm' : 'mcp'}"`
  const challenge = `Bearer ${error}${metadata}, ${scope}, DPoP ${error}algs="${PROOF_ALGORITHMS.join(' ')}"`
  const message = reason === 'token_invalid' ? (cause?.message ?? SIGN_IN_AGAIN) : undefined
  return new Refusal(reason, {
    ...(cause && { cause }),
    ...(message !== undefined && { message }),
    headers: { 'www-authenticate': challenge },
  })
}

const SIGN_IN_AGAIN = 'The access token is not valid for this request. Refresh it, or sign in again.'

interface BearerProofDependencies extends BearerDoor {
  readonly nonces: NonceIssuer
  /** The least proof that LLM calls take here, by the configuration in force; `certificate`: none is made here. */
  readonly llm: () => MinProof
}

interface BearerProofFacts {
  readonly proof: DpopProof | null
  readonly token: AccessToken | null
}

type GrantedArrival = Arrival & {
  readonly principal: Principal
  readonly grant?: CallGrant
  readonly demand?: CapabilityDemand
}

/**
 * Checks the proof of the key that a grant is bound to, in the place of `dpop` at the door of people (RFC 9449
 * §7). Refuses with `proof_required`, `proof_invalid` or `use_dpop_nonce`; an LLM call of a lower grade than
 * the door takes with `proof_too_weak`. Does NOT check that a proof is new: the recorder claims it.
 */
export function bearerProof(sources: BearerProofDependencies): Plugin<GrantedArrival, BearerProofFacts> {
  const urls = targetUrls(() => [sources.url()])
  const demandGrade = ({ grant, demand }: GrantedArrival): void => {
    const least = demand?.action === 'egress_llm_chat' ? sources.llm() : 'none'
    if (!grant || !isProofEnough(grant.bound, least)) throw proofTooWeak(least)
  }
  return {
    name: 'bearer_proof',
    admit: (facts) => {
      const { grant, answer, at } = facts
      if (!grant) throw new Error('a proof was asked for before the grant')
      if (grant.bound === 'key') answer['dpop-nonce'] = sources.nonces.current('resource', at)
      const proof = grant.bound === 'key' ? grantProof(facts, grant, sources, urls) : null
      demandGrade(facts)
      return { proof, token: { scope: grant.scope, bound: false } }
    },
    still: (facts) => {
      demandGrade(facts)
      return {}
    },
  }
}

function grantProof(
  arrival: Arrival,
  { jkt }: CallGrant,
  { nonces }: BearerProofDependencies,
  urls: (path: string) => ReadonlySet<string>,
): DpopProof {
  const { headers, method, path, at } = arrival
  const { dpop: sent } = headers
  if (sent === undefined) throw new Refusal('proof_required')
  const accessToken = sentToken(arrival)?.text ?? null
  const isFresh = (nonce: string): boolean => nonces.isFresh('resource', nonce, at)
  const proof = checkProof(String(sent), { method, urls: urls(path), at, accessToken, isFresh })
  if (proof.jkt !== jkt) throw new Refusal('proof_invalid')
  return proof
}

/** Refuses a call whose grade is less than its target takes. */
export const proofTooWeak = (least: MinProof): Refusal =>
  new Refusal('proof_too_weak', { detail: { min_proof: least } })
