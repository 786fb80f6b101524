import { hash } from 'node:crypto'
import type { JWTPayload } from 'jose'
import type Provider from 'oidc-provider'
import type { ProviderContext, ProviderToken } from 'oidc-provider'
import { newGrantId } from '../../../db/people/grants.ts'
import { claimOnce } from '../../../db/single-uses.ts'
import { audienceOf } from '../../../plugins/dpop/audience.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { personOf, SignInRefused } from '../../operators/oidc/person.ts'
import { ProviderUnavailable } from '../../operators/oidc/provider-fetch.ts'
import type { PeopleSignIn } from '../pages/sign-in.ts'
import { resolveMappedUser } from '../pages/user-of.ts'
import { grantClientOf } from './clients.ts'
import { beginGrant, grantTerms, type IssueDependencies } from './issue.ts'
import { ACCESS_TOKEN_S } from './provider.ts'
import { currentUnit } from './unit.ts'

/** The type of the assertion (draft-ietf-oauth-identity-assertion-authz-grant). */
const TYPE = 'oauth-id-jag+jwt'
/** The most that an assertion may be old. Seconds. */
const MAX_AGE_S = 300

type IdJagSigning = Pick<PeopleSignIn, 'context' | 'options' | 'identityProvider' | 'identityKey'> & {
  readonly url: string
}

/**
 * Makes the handler of the grant by which a company's identity provider vouches for a person to a client. No page
 * is shown and no refresh token given: the identity provider is asked again.
 */
export const redeemIdJag =
  (signing: IdJagSigning, means: IssueDependencies) =>
  async (library: Provider, ctx: ProviderContext): Promise<void> => {
    const { errors } = await import('oidc-provider')
    const { oidc } = ctx
    const claims = await verifiedClaims(signing, oidc.params.assertion, errors)
    if (claims.client_id !== oidc.client.clientId)
      throw new errors.InvalidGrant('the assertion is for another client')
    const resource = resourceOf(claims, oidc.params.resource, signing.url)
    if (resource === null)
      throw new errors.InvalidTarget('the resource is not of this server, or not of the assertion')
    const unit = currentUnit()
    const { at } = unit.arrival
    const digest = hash('sha256', `id-jag ${claims.iss} ${claims.jti}`)
    unit.write(claimOnce(means.database, digest, at + 2 * MAX_AGE_S * 1000))
    const user = await mappedUser(signing, claims, errors)
    const token = makeToken(library, ctx, {
      resource,
      scope: scopeOf(ctx, claims),
      accountId: user.principal_id,
    })
    const proof = await provenKey(library, ctx)
    if (proof !== undefined) token.setThumbprint('jkt', proof)
    await beginGrant(means, user, {
      ...{ id: token.grantId, principalId: user.principal_id, kind: 'id_jag' },
      client: grantClientOf(oidc.client.clientId, null),
      ...grantTerms(token, at + ACCESS_TOKEN_S * 1000, amrOf(claims)),
    })
    ctx.body = {
      access_token: await token.save(),
      token_type: token.tokenType,
      expires_in: token.expiration,
      scope: token.scope,
    }
  }

type LibraryErrors = typeof import('oidc-provider')['errors']
type AssertionClaims = JWTPayload & { readonly sub: string }

async function verifiedClaims(
  { identityProvider, url }: IdJagSigning,
  assertion: unknown,
  { InvalidGrant }: LibraryErrors,
): Promise<AssertionClaims> {
  const { at } = currentUnit().arrival
  if (!identityProvider || typeof assertion !== 'string') throw new InvalidGrant('there is no assertion')
  const requiredClaims = ['sub', 'exp', 'iat', 'jti', 'client_id']
  const more = { audience: url, typ: TYPE, requiredClaims }
  try {
    const { sub, ...claims } = await identityProvider.verify(assertion, at, MAX_AGE_S, more)
    // One audience, to the letter: the assertion is for nobody else.
    if (claims.aud !== url || !sub) throw new Error('it is for others, too')
    return { ...claims, sub }
  } catch (error) {
    if (error instanceof ProviderUnavailable)
      currentUnit().refuse(
        new Refusal('sign_in_unavailable', { cause: error, headers: { 'retry-after': '60' } }),
      )
    throw new InvalidGrant('the assertion is not valid')
  }
}

/** Finds the one resource that is asked for, of those that the assertion is for; null: there is none. */
function resourceOf({ resource: named }: AssertionClaims, asked: unknown, url: string): string | null {
  const audience = (one: unknown): string | null => (typeof one === 'string' ? audienceOf(one, [url]) : null)
  const allowed = [named ?? url].flat().map(audience)
  const wanted = [asked ?? named ?? url].flat()
  const resource = wanted.length === 1 ? audience(wanted[0]) : null
  return resource !== null && (allowed.includes(resource) || allowed.includes(url)) ? resource : null
}

const scopeOf = ({ oidc }: ProviderContext, { scope }: AssertionClaims): string => {
  const allowed = typeof scope === 'string' ? scope.split(' ') : null
  const asked = typeof oidc.params.scope === 'string' ? oidc.params.scope.split(' ') : (allowed ?? ['mcp'])
  return asked.filter((name) => allowed === null || allowed.includes(name)).join(' ')
}

async function mappedUser(signing: IdJagSigning, claims: AssertionClaims, { InvalidGrant }: LibraryErrors) {
  const { identityProvider, ...sources } = signing
  if (!identityProvider) throw new InvalidGrant('there is no identity provider')
  try {
    return await resolveMappedUser(sources, personOf(claims, identityProvider.options), currentUnit().arrival)
  } catch (error) {
    throw error instanceof SignInRefused ? new InvalidGrant('this person may not sign in') : error
  }
}

interface IdJagToken {
  readonly resource: string
  readonly scope: string
  readonly accountId: string
}

function makeToken(
  library: Provider,
  { oidc: { client } }: ProviderContext,
  { resource, scope, accountId }: IdJagToken,
): ProviderToken {
  const grantId = newGrantId()
  const token = new library.AccessToken({ accountId, client, grantId, gty: 'id_jag' })
  token.resourceServer = new library.ResourceServer(resource, {
    ...{ audience: resource, scope, accessTokenFormat: 'jwt', accessTokenTTL: ACCESS_TOKEN_S },
    jwt: { sign: { alg: 'ES256' } },
  })
  token.scope = scope
  return token
}

/** The key that a request proves, used once; undefined: it proves none. */
async function provenKey(library: Provider, ctx: ProviderContext): Promise<string | undefined> {
  const { validateDpop, checkDpopReplay } = await import('oidc-provider/lib/helpers/grants.js')
  const proof = await validateDpop(library, ctx)
  if (proof) await checkDpopReplay(library, ctx, proof, ctx.oidc.client.clientId)
  return proof?.thumbprint
}

const amrOf = ({ amr }: AssertionClaims): readonly string[] =>
  Array.isArray(amr) ? amr.filter((one) => typeof one === 'string').slice(0, 16) : []
