import { randomUUID } from 'node:crypto'
import { SignJWT } from 'jose'
import type { Database } from '../../db/database.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { authorityUnchanged } from '../../db/principals/pins.ts'
import { claimOnce } from '../../db/single-uses.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'
import { serviceEntry } from '../../plugins/audit/entries.ts'
import { audienceOf } from '../../plugins/dpop/audience.ts'
import { isReplay } from '../../plugins/dpop/single-use.ts'
import type { DpopProof, Principal } from '../../plugins/facts.ts'
import type { PinnedCaller } from '../../plugins/pin/pin.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { PrincipalQuota } from '../../plugins/secrets/quota.ts'
import { jsonReply, type Reply } from '../http/reply.ts'
import type { LoginChallenges } from './login-challenge.ts'
import type { TokenKeys } from './token-keys.ts'
import type { TokenRequest } from './token-request.ts'

export interface TokenIssueDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly keys: TokenKeys
  readonly logins: LoginChallenges
  readonly quota: PrincipalQuota
  readonly baseUrls: () => readonly string[]
  readonly configDigest: string
  /** True: some provider is called with the caller's own vendor key, so clients pass it on. */
  readonly vendorKeys: boolean
  /** Asks once more who the caller is. Rejects with a refusal if the certificate is another's, or ended. */
  readonly reask: (facts: ReverifiedTokenFacts) => Promise<Principal>
}

type TokenRequestFacts = Arrival &
  PinnedCaller & {
    tokenRequest: TokenRequest
    proof: DpopProof | null
  }
/** `holder`: the principal as it was asked once more after the body. */
type ReverifiedTokenFacts = TokenRequestFacts & { holder: Principal }

/**
 * POST /v1/auth/token: a short-lived token that is bound to the client's certificate (RFC 8705 §3) and, if a
 * proof came, to its key (RFC 9449 §5), recorded before it is handed out. The database decides at each call
 * what it may do; `scope` only narrows that. Refuses with `scope_invalid`, `target_invalid`,
 * `client_invalid`, `assertion_invalid`, `token_throttled`.
 */
export const issueToken =
  (sources: TokenIssueDependencies) =>
  async (asked: ReverifiedTokenFacts): Promise<Reply> => {
    const { proof, holder, tokenRequest: request } = asked
    if (request.clientId !== null && request.clientId !== holder.id) throw new Refusal('client_invalid')
    checkScope(request, holder)
    const audience = audienceAsked(request.resources, sources.baseUrls())
    const claims = {
      proof: proof ? [claimOnce(sources.database, proof.replayKey, proof.expiresAt)] : [],
      challenge: await challengeOf(request.clientAssertion, { ...asked, principal: holder }, sources),
    }
    const waitS = sources.quota.consume(holder.id)
    if (waitS > 0) throw new Refusal('token_throttled', { headers: { 'retry-after': String(waitS) } })
    const { facts, scope } = await recordedGrant(sources, asked, claims)
    const accessToken = await sign(sources, facts, audience, scope)
    const type = proof ? 'DPoP' : 'Bearer'
    return jsonReply(200, {
      access_token: accessToken,
      token_type: type,
      expires_in: request.expiresInS,
      scope,
      ...(sources.vendorKeys && { vendor_keys: true }),
    })
  }

function checkScope({ scope }: TokenRequest, { capabilities }: Principal): void {
  if (scope?.some((token) => !capabilities.includes(token))) throw new Refusal('scope_invalid')
}

/** Changes that come one after the other must not refuse a token that all of them allow. */
const MAX_JUDGEMENTS = 4

/** Records the token of whoever the caller is by then: a change may come between, such as its own renewal. */
async function recordedGrant(
  sources: TokenIssueDependencies,
  asked: ReverifiedTokenFacts,
  claims: SingleUseClaims,
): Promise<{ readonly facts: TokenRequestFacts; readonly scope: string }> {
  let principal = asked.holder
  for (let times = 1; ; times += 1) {
    const scope = (asked.tokenRequest.scope ?? principal.capabilities).join(' ')
    const facts: TokenRequestFacts = { ...asked, principal }
    try {
      await record(sources, facts, scope, claims)
      return { facts, scope }
    } catch (cause) {
      // Nothing is stored then, and the proof is free.
      if (!(cause instanceof LedgerError && cause.code === 'stale')) throw cause
      if (times === MAX_JUDGEMENTS)
        throw new Refusal('overloaded', { cause, headers: { 'retry-after': '1' } })
    }
    principal = await sources.reask(asked)
    checkScope(asked.tokenRequest, principal)
  }
}

/**
 * Returns the audience of a token (RFC 8707): the one resource that is asked for, which must be ours, or
 * without one the whole service. Refuses with `target_invalid`.
 */
function audienceAsked(resources: readonly string[], baseUrls: readonly string[]): string {
  if (resources.length === 0) return baseUrls[0] ?? ''
  const [audience, ...others] = new Set(resources.map((resource) => audienceOf(resource, baseUrls)))
  if (typeof audience !== 'string') throw new Refusal('target_invalid')
  if (others.length > 0)
    throw new Refusal('target_invalid', {
      message: 'A token is for one resource. Send one resource, and ask again for each other.',
    })
  return audience
}

/** Claims in the unit of a token's row: the proof that came with the request, and the login's challenge. */
interface SingleUseClaims {
  readonly proof: readonly LedgerStatement[]
  readonly challenge: readonly LedgerStatement[]
}

async function challengeOf(
  assertion: string | null,
  facts: TokenRequestFacts,
  { logins, database }: TokenIssueDependencies,
): Promise<readonly LedgerStatement[]> {
  if (assertion === null) return []
  const { replayKey, expiresAt } = await logins.check(assertion, facts)
  return [claimOnce(database, replayKey, expiresAt)]
}

async function record(
  { database, ledger, configDigest }: TokenIssueDependencies,
  { id, at, principal, peer, proof }: TokenRequestFacts,
  scope: string,
  claims: SingleUseClaims,
): Promise<void> {
  const entry = {
    ...serviceEntry('token.issued', 'success', { scope }, at, configDigest),
    request_id: id,
    principal_id: principal.ref,
    principal_type: principal.type,
    cert_thumbprint: peer?.thumbprint ?? null,
    dpop_jkt: proof?.jkt ?? null,
  }
  const assertions = [authorityUnchanged(database)(principal.type, principal.ref, principal.revision)]
  try {
    await ledger.commit({
      assertions,
      statements: [...claims.proof, ...claims.challenge],
      entries: [entry],
    })
  } catch (cause) {
    if (cause instanceof LedgerError && cause.code === 'stale') throw cause
    throw isReplay(cause)
      ? new Refusal(await usedBefore(ledger, claims), { cause })
      : new Refusal('audit_unavailable', { cause })
  }
}

/** Tells which of two claims was no longer free: if only the proof's still is, it was the challenge's. */
async function usedBefore(
  ledger: TokenIssueDependencies['ledger'],
  { proof, challenge }: SingleUseClaims,
): Promise<'proof_invalid' | 'assertion_invalid'> {
  if (challenge.length === 0) return 'proof_invalid'
  if (proof.length === 0) return 'assertion_invalid'
  try {
    // And used up by that, as by any other refusal.
    await ledger.commit({ statements: proof, entries: [] })
    return 'assertion_invalid'
  } catch (error) {
    if (isReplay(error)) return 'proof_invalid'
    throw new Refusal('audit_unavailable', { cause: error })
  }
}

async function sign(
  { keys, baseUrls }: TokenIssueDependencies,
  { at, principal, peer, proof, tokenRequest: { expiresInS, scope: narrowedTo } }: TokenRequestFacts,
  audience: string,
  scope: string,
): Promise<string> {
  const { kid, key } = await keys.signer()
  const iat = Math.floor(at / 1000)
  const cnf = {
    'x5t#S256': Buffer.from(peer?.thumbprint ?? '', 'hex').toString('base64url'),
    ...(proof && { jkt: proof.jkt }),
  }
  return new SignJWT({ client_id: principal.id, scope, ...(narrowedTo && { narrowed: true }), cnf })
    .setProtectedHeader({ alg: 'ES256', typ: 'at+jwt', kid })
    .setIssuer(baseUrls()[0] ?? '')
    .setAudience(audience)
    .setSubject(principal.id)
    .setIssuedAt(iat)
    .setExpirationTime(iat + expiresInS)
    .setJti(randomUUID())
    .sign(key)
}
