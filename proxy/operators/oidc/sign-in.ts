import { hash, timingSafeEqual } from 'node:crypto'
import * as client from 'openid-client'
import { authorityUnchanged } from '../../../db/principals/pins.ts'
import { claimOnce, isClaimed } from '../../../db/single-uses.ts'
import { isReplay } from '../../../plugins/dpop/single-use.ts'
import { cookieOf, setCookie, TRANSACTION_COOKIE } from '../../../plugins/operators/sessions.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { notFound, Refusal } from '../../../plugins/refusal.ts'
import { senderOf } from '../../../plugins/secrets/throttle.ts'
import type { Reply } from '../../http/reply.ts'
import type { OidcOptions } from '../options.ts'
import { isFromOtherOrigin } from '../pages/form.ts'
import { nextPage, redirectPage, seeOther, withNext } from '../pages/page.ts'
import { beginSession } from '../sessions/open.ts'
import type { SignInContext } from '../signing-in.ts'
import { clockRefusalOf, findCause, oidcFailureFields } from './causes.ts'
import { resolveMappedOperator } from './operator-of.ts'
import { type OidcPerson, personOf, recordRefusedSignIn, SignInRefused } from './person.ts'
import type { DiscoveredProvider, IdentityProvider } from './provider.ts'
import { ProviderUnavailable } from './provider-fetch.ts'
import {
  openTransaction,
  type SignInTransaction,
  sealTransaction,
  TRANSACTION_LIFE_S,
} from './transaction.ts'

const START = '/proxy/oidc/start'
const CALLBACK = '/proxy/oidc/callback'

/** An ID token is made for this very sign-in. Seconds. */
const MAX_ID_TOKEN_AGE_S = 300

/**
 * GET /proxy/oidc/start: sends the browser to the identity provider (OpenID Connect Core 1.0 §3.1, RFC 7636,
 * RFC 9700 §2.1). All that is to be remembered goes along in a sealed cookie.
 */
export const startSignIn =
  (signing: SignInContext) =>
  async (arrival: Arrival): Promise<Reply> => {
    const { at, query, headers } = arrival
    const provider = providerOf(signing)
    const next = nextPage(query)
    // A link of another site comes without the Strict cookie of the session that this sign-in is to replace.
    if (isFromOtherOrigin(arrival)) return redirectPage(withNext(START, next))
    // The provider's answer comes from another site, without the Strict cookie of the session.
    const replaces = signing.sessions.digestIn(arrival)
    const redirect = `${baseOf(signing.adminPages(), headers.host)}${CALLBACK}`
    return beginTransaction(signing, provider, {
      ...(replaces !== null && { replaces }),
      redirect,
      next,
      at,
      cookie: TRANSACTION_COOKIE,
    })
  }

interface TransactionStart extends Pick<SignInTransaction, 'redirect' | 'next' | 'at' | 'replaces'> {
  /** The name of the cookie that keeps it. */
  readonly cookie: string
}

/** Begins a sign-in: sends the browser to the identity provider, with all that is to be remembered. */
export async function beginTransaction(
  signing: Pick<SignInContext, 'key'>,
  provider: IdentityProvider,
  { cookie, ...start }: TransactionStart,
): Promise<Reply> {
  const found = await discoverProvider(provider)
  const { options } = provider
  const begun: SignInTransaction = {
    ...start,
    state: client.randomState(),
    nonce: client.randomNonce(),
    verifier: client.randomPKCECodeVerifier(),
    issuer: options.issuer,
    client: options.client_id,
  }
  const url = client.buildAuthorizationUrl(found.configuration, {
    redirect_uri: begun.redirect,
    scope: options.scopes.join(' '),
    state: begun.state,
    nonce: begun.nonce,
    code_challenge: await client.calculatePKCECodeChallenge(begun.verifier),
    code_challenge_method: 'S256',
    ...(options.acr_values.length > 0 && { acr_values: options.acr_values.join(' ') }),
    ...claimsAsked(found, options),
  })
  const sealed = sealTransaction(signing.key, begun)
  // Lax: the provider's answer is a navigation from another site.
  return seeOther(url.href, { 'set-cookie': setCookie(cookie, sealed, 'Lax', TRANSACTION_LIFE_S) })
}

/** The base URL that the browser has used, of those that are ours: it has its cookies for no other. */
const baseOf = (ours: readonly string[], host: string | undefined): string =>
  ours.find((url) => new URL(url).host === host) ?? ours.at(-1) ?? ''

/** Some providers put only requested claims into the ID token (OpenID Connect Core 1.0 §5.5). */
function claimsAsked({ configuration }: DiscoveredProvider, options: OidcOptions): Record<string, string> {
  if (configuration.serverMetadata().claims_parameter_supported !== true) return {}
  const { claim, acr_values: acrs } = options
  const who = claim === 'email' ? { email: null, email_verified: null } : { [claim]: null }
  // Asking for `acr` in addition to `acr_values` means nothing in particular (§5.5.1.1).
  const how = acrs.length > 0 ? { amr: null } : { amr: null, acr: null }
  return { claims: JSON.stringify({ id_token: { ...how, ...who } }) }
}

/**
 * GET /proxy/oidc/callback: takes the provider's answer, and begins the session. Refuses with
 * `sign_in_not_begun` an answer to another transaction than this browser's own, with `sign_in_refused` a
 * person who gets nothing, with `sign_in_unavailable` if the provider cannot be asked. Answers with a page
 * that leads on: the browser came from another site, and would not send its new cookie yet.
 */
export const finishSignIn =
  (signing: SignInContext) =>
  async (arrival: Arrival): Promise<Reply> => {
    const provider = providerOf(signing)
    const { begun, claims } = await completeTransaction(signing, provider, arrival, TRANSACTION_COOKIE)
    try {
      const person = personOf(claims, provider.options)
      return redirectPage(begun.next, {
        'set-cookie': await beginOidcSession(signing, person, begun, arrival),
      })
    } catch (error) {
      if (!(error instanceof SignInRefused)) throw error
      await recordRefusedSignIn(
        signing,
        { error, issuer: provider.options.issuer, subject: claims.sub },
        arrival,
      )
      throw new Refusal('sign_in_refused', { cause: error })
    }
  }

/** The means of a sign-in that does not begin a session of an operator. */
type TransactionContext = Pick<SignInContext, 'key' | 'wrongCodes' | 'exchanges' | 'anonymous' | 'log'> & {
  readonly context: Pick<SignInContext['context'], 'database' | 'ledger'>
}

/**
 * Completes a sign-in by the provider's answer, once. Refuses with `sign_in_not_begun` an answer to another
 * transaction than this browser's own.
 */
export async function completeTransaction(
  signing: TransactionContext,
  provider: IdentityProvider,
  arrival: Arrival,
  cookie: string,
): Promise<{ readonly begun: SignInTransaction; readonly claims: VerifiedIdClaims }> {
  const begun = ownTransaction(signing, provider, arrival, cookie)
  const digest = hash('sha256', `sign-in ${begun.state}`)
  // By transaction: others of the same address have nothing to do with it.
  if (signing.wrongCodes.waitS(digest) > 0) throw new Refusal('sign_in_not_begun')
  if (await isClaimed(signing.context.database)(digest)) throw new Refusal('sign_in_not_begun')
  const claims = await signing.exchanges.run(senderOf(arrival.remoteAddress), () =>
    exchangeCode(signing, provider, begun, digest, arrival),
  )
  await claimTransaction(signing, digest, begun)
  return { begun, claims }
}

function providerOf({ provider }: SignInContext): IdentityProvider {
  if (provider) return provider
  throw notFound('Signing in with an identity provider is not set up here.')
}

async function discoverProvider(provider: IdentityProvider): Promise<DiscoveredProvider> {
  try {
    return await provider.discovered()
  } catch (error) {
    throw unavailable(error)
  }
}

const unavailable = (cause: unknown): Refusal =>
  new Refusal('sign_in_unavailable', { cause, headers: { 'retry-after': '60' } })

/** Finds the transaction that an answer is for: this browser's own, with this provider. */
function ownTransaction(
  { key }: Pick<SignInContext, 'key'>,
  { options }: IdentityProvider,
  { headers, query, at }: Arrival,
  cookie: string,
): SignInTransaction {
  const begun = openTransaction(key, cookieOf(headers, cookie), at)
  const state = new URLSearchParams(query).getAll('state')
  const isItsOwn =
    begun !== null &&
    state.length === 1 &&
    isSameText(state[0] ?? '', begun.state) &&
    begun.issuer === options.issuer &&
    begun.client === options.client_id
  if (!isItsOwn) throw new Refusal('sign_in_not_begun')
  return begun
}

const isSameText = (one: string, other: string): boolean =>
  timingSafeEqual(hash('sha256', one, 'buffer'), hash('sha256', other, 'buffer'))

type VerifiedIdClaims = Parameters<typeof personOf>[0]

/** Redeems the code, and verifies the ID token that comes for it. `digest`: of the transaction. */
async function exchangeCode(
  signing: TransactionContext,
  provider: IdentityProvider,
  begun: SignInTransaction,
  digest: string,
  { id, at, query }: Arrival,
): Promise<VerifiedIdClaims> {
  const { configuration } = await discoverProvider(provider)
  const answer = new URL(`${begun.redirect}?${query}`)
  try {
    // RFC 9207, state, PKCE, and all of OpenID Connect Core 1.0 §3.1.3.7 but the signature.
    const tokens = await client.authorizationCodeGrant(configuration, answer, {
      pkceCodeVerifier: begun.verifier,
      expectedState: begun.state,
      expectedNonce: begun.nonce,
      idTokenExpected: true,
    })
    const requiredClaims = ['sub', 'exp', 'iat', 'nonce']
    const claims = await provider.verify(tokens.id_token ?? '', at, MAX_ID_TOKEN_AGE_S, { requiredClaims })
    const { sub, nonce, azp = provider.options.client_id } = claims
    if (nonce !== begun.nonce || azp !== provider.options.client_id || !isSubject(sub))
      throw new Error('the ID token is not for this sign-in')
    return { ...claims, sub }
  } catch (error) {
    const down = findCause(error, ProviderUnavailable)
    if (down) throw unavailable(down)
    signing.wrongCodes.recordFailure(digest)
    signing.anonymous.count('sign_in_refused')
    // Whoever runs the provider must find out why.
    const ofClock = clockRefusalOf(error, 'sign_in_refused', at)
    signing.log.warn(
      { reqId: id, ...oidcFailureFields(error, provider.options), clock: ofClock?.message },
      'the answer of the identity provider is not valid',
    )
    throw ofClock ?? new Refusal('sign_in_refused', { cause: error })
  }
}

/** OpenID Connect Core 1.0 §2. */
const isSubject = (sub: string | undefined): sub is string =>
  sub !== undefined && sub !== '' && sub.length <= 255

/** A transaction ends once, whichever replica sees its answer, also if the provider takes a code twice. */
async function claimTransaction(
  { context }: TransactionContext,
  digest: string,
  { at }: SignInTransaction,
): Promise<void> {
  const { database, ledger } = context
  const until = at + 2 * TRANSACTION_LIFE_S * 1000
  try {
    await ledger.commit({ statements: [claimOnce(database, digest, until)], entries: [] })
  } catch (error) {
    throw isReplay(error) ? new Refusal('sign_in_not_begun', { cause: error }) : error
  }
}

async function beginOidcSession(
  signing: SignInContext,
  person: OidcPerson,
  { replaces }: SignInTransaction,
  { id, at }: Arrival,
): Promise<string> {
  const { context, mapping } = signing
  const { operator, marks } = await resolveMappedOperator(context, mapping, person, { id, at })
  const { principal_id: principalId, authority_revision: revision } = operator
  const { issuer, subject, acr, amr, providerSession } = person
  return beginSession(signing, {
    id,
    at,
    replaces: replaces ?? null,
    author: { id: principalId, type: 'operator', via: 'oidc', standing: [] },
    via: 'oidc',
    principalId,
    marks,
    amr,
    issuer,
    subject,
    providerSession,
    assertions: [authorityUnchanged(context.database)('operator', principalId, revision)],
    detail: { issuer, acr, amr },
  })
}
