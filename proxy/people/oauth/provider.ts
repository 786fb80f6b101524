import type Provider from 'oidc-provider'
import type { ProviderClient, ProviderContext, ProviderToken } from 'oidc-provider'
import { isCapability } from '../../../db/capabilities.ts'
import { audienceOf } from '../../../plugins/dpop/audience.ts'
import { PROOF_ALGORITHMS } from '../../../plugins/dpop/key.ts'
import { type PeopleOptions, scopesOf } from '../options.ts'
import type { PeopleStateAdapter } from './adapter.ts'
import { MAX_DOCUMENT_BYTES } from './client-fetch.ts'
import { clientDigest, clientMetadata, documentRule, sealClient } from './clients.ts'

/** The life of an access token. Seconds. */
export const ACCESS_TOKEN_S = 600
/** The life of a code. Seconds. */
const CODE_S = 60
/** The time that somebody may take to sign in and to consent. Seconds. */
export const SIGN_IN_S = 600

export const ID_JAG_GRANT = 'urn:ietf:params:oauth:grant-type:jwt-bearer'

export const PEOPLE_COOKIES = {
  session: '__Host-people',
  interaction: '__Secure-people-sign-in',
  resume: '__Secure-people-resume',
} as const

/** An access token of the library, before it is signed. */
export interface TokenParts {
  readonly payload: Record<string, unknown>
}

export interface ProviderParts {
  /** The one URL of the listener. */
  readonly url: string
  readonly options: PeopleOptions
  /** Signs access tokens. A private JWK with `kid`. */
  readonly signer: object
  readonly adapter: (kind: string) => PeopleStateAdapter
  readonly fetch: (url: string | URL) => Promise<Response>
  /** 32 bytes that seal clients, the same in all processes of the service. */
  readonly clientKey: Buffer
  /** Finds a user who may sign in; undefined: gone, or deactivated. `token`: the refresh token that asks. */
  readonly findUser: (id: string, token?: ProviderToken) => Promise<object | undefined>
  /** Records a token before it is signed, and completes its claims. */
  readonly issue: (ctx: ProviderContext, token: ProviderToken, parts: TokenParts) => Promise<void>
  /** Redeems an ID-JAG. */
  readonly idJag: (provider: Provider, ctx: ProviderContext) => Promise<void>
  /** Renders an error for a browser. */
  readonly renderError: (ctx: ProviderContext, out: Readonly<Record<string, string>>) => void
  readonly onError: (error: Error) => void
}

/** The grants that a client of this configuration may use. */
export const grantTypesOf = ({ id_jag: takesIdJag }: Pick<PeopleOptions, 'id_jag'>): readonly string[] => [
  'authorization_code',
  'refresh_token',
  ...(takesIdJag ? [ID_JAG_GRANT] : []),
]

/**
 * Makes the authorization server of a configuration and a key. The one place that loads its library, and so
 * only where the listener is open.
 */
export async function makeProvider(parts: ProviderParts): Promise<Provider> {
  const library = await import('oidc-provider')
  const { url, options, idJag, onError } = parts
  const provider = new library.default(url, {
    ...tokenConfiguration(parts, library),
    ...clientConfiguration(parts, library),
    ...interactionConfiguration(parts, library),
  })
  provider.on('server_error', (_, error) => onError(error))
  if (options.id_jag)
    provider.registerGrantType(ID_JAG_GRANT, (ctx) => idJag(provider, ctx), [
      'assertion',
      'scope',
      'resource',
    ])
  return provider
}

type Library = typeof import('oidc-provider')

function tokenConfiguration(parts: ProviderParts, { errors }: Library): Readonly<Record<string, unknown>> {
  const { url, options, signer, adapter, issue, findUser } = parts
  const hours = options.grant_hours * 3600
  const scopes = scopesOf(options)
  return {
    adapter,
    jwks: { keys: [signer] },
    scopes: [],
    claims: {},
    responseTypes: ['code'],
    clockTolerance: 5,
    expiresWithSession: () => false,
    issueRefreshToken: (_: ProviderContext, client: { grantTypeAllowed: (type: string) => boolean }) =>
      client.grantTypeAllowed('refresh_token'),
    rotateRefreshToken: () => true,
    ttl: {
      AccessToken: ACCESS_TOKEN_S,
      AuthorizationCode: CODE_S,
      Grant: hours,
      IdToken: ACCESS_TOKEN_S,
      Interaction: SIGN_IN_S,
      RefreshToken: ({ oidc }: ProviderContext) => remainingS(oidc.entities.Grant?.exp, hours),
      Session: hours,
    },
    formats: { customizers: { jwt: issue } },
    findAccount: async (_: ProviderContext, sub: string, token?: ProviderToken) => {
      const user = await findUser(sub, token)
      return user && { accountId: sub, claims: () => ({ sub }) }
    },
    features: {
      ...featuresOf(parts, errors),
      resourceIndicators: {
        enabled: true,
        defaultResource: () => url,
        useGrantedResource: () => true,
        getResourceServerInfo: ({ oidc }: ProviderContext, resource: string) => {
          const audience = audienceOf(resource, [url])
          if (audience === null) throw new errors.InvalidTarget('this resource is not of this server')
          const asked = [...oidc.requestParamScopes].filter(isCapability)
          return {
            audience,
            scope: [...scopes, ...asked].join(' '),
            accessTokenFormat: 'jwt',
            accessTokenTTL: ACCESS_TOKEN_S,
            jwt: { sign: { alg: 'ES256' } },
          }
        },
      },
    },
  }
}

const remainingS = (until: number | undefined, most: number): number =>
  Math.max(1, Math.min(most, (until ?? 0) - Math.floor(Date.now() / 1000)))

function featuresOf(
  { options, clientKey }: ProviderParts,
  errors: Library['errors'],
): Readonly<Record<string, unknown>> {
  const grantTypes = grantTypesOf(options)
  return {
    devInteractions: { enabled: false },
    userinfo: { enabled: false },
    rpInitiatedLogout: { enabled: false },
    revocation: {
      enabled: true,
      allowedPolicy: (_: ProviderContext, { clientId }: ProviderClient, token: { clientId: string }) =>
        token.clientId === clientId,
    },
    dPoP: { enabled: true },
    pushedAuthorizationRequests: { enabled: true },
    clientIdMetadataDocument: {
      enabled: options.clients.allow.length > 0,
      ack: 'draft-02',
      allowFetch: (_: ProviderContext, id: string) => documentRule(options, id) !== null,
      allowClient: (_: ProviderContext, { clientId }: { clientId: string }) =>
        documentRule(options, clientId) !== null,
      cacheDuration: { min: 60, max: 86_400 },
    },
    registration: {
      enabled: options.clients.registration === 'sealed',
      issueRegistrationAccessToken: false,
      idFactory: ({ oidc }: ProviderContext) => {
        const reduced = clientMetadata(oidc.body, grantTypes)
        const id = sealClient(clientKey, reduced)
        if (id === null)
          throw new errors.InvalidClientMetadata('at most 5 redirect_uris, and 700 characters in all')
        for (const name of Object.keys(oidc.body)) delete oidc.body[name]
        Object.assign(oidc.body, reduced)
        return id
      },
    },
  }
}

function clientConfiguration({ fetch }: ProviderParts, _: Library): Readonly<Record<string, unknown>> {
  return {
    clientDefaults: {
      grant_types: ['authorization_code', 'refresh_token'],
      id_token_signed_response_alg: 'ES256',
      token_endpoint_auth_method: 'none',
    },
    clientAuthMethods: ['none', 'private_key_jwt'],
    allowOmittingSingleRegisteredRedirectUri: false,
    pkce: { required: () => true },
    clientBasedCORS: () => false,
    fetch,
    fetchResponseBodyLimits: {
      'client_id metadata document': MAX_DOCUMENT_BYTES,
      jwks_uri: MAX_DOCUMENT_BYTES,
      sector_identifier_uri: 0,
    },
    enabledJWA: {
      clientAuthSigningAlgValues: ['ES256', 'PS256', 'EdDSA', 'Ed25519'],
      idTokenSigningAlgValues: ['ES256'],
      dPoPSigningAlgValues: [...PROOF_ALGORITHMS],
    },
    routes: {
      authorization: '/oauth/authorize',
      token: '/oauth/token',
      registration: '/oauth/register',
      revocation: '/oauth/revoke',
      pushed_authorization_request: '/oauth/par',
      jwks: '/.well-known/jwks.json',
      end_session: '/oauth/end-session',
    },
  }
}

function interactionConfiguration(
  { renderError }: ProviderParts,
  { interactionPolicy: { Prompt, Check } }: Library,
): Readonly<Record<string, unknown>> {
  const needs = (isMissing: (ctx: ProviderContext) => boolean) => (ctx: ProviderContext) =>
    isMissing(ctx) ? Check.REQUEST_PROMPT : Check.NO_NEED_TO_PROMPT
  const signedIn = needs(({ oidc }) => !oidc.account)
  // For this very client: one whose document has changed since is asked about again.
  const consented = needs(({ oidc }) => oidc.result?.consent?.client !== clientDigest(oidc.client.metadata()))
  const policy = [
    new Prompt({ name: 'login', requestable: true }, new Check('no_session', 'sign in first', signedIn)),
    new Prompt({ name: 'consent', requestable: true }, new Check('no_consent', 'consent first', consented)),
  ]
  return {
    renderError,
    cookies: {
      names: PEOPLE_COOKIES,
      long: { httpOnly: true, sameSite: 'lax', secure: true, path: '/' },
      short: { httpOnly: true, sameSite: 'lax', secure: true, path: '/oauth' },
    },
    interactions: {
      policy,
      url: (_: ProviderContext, { uid }: { uid: string }) => `/oauth/consent/${uid}`,
    },
    loadExistingGrant: ({ oidc }: ProviderContext & { readonly oidc: { readonly provider?: Provider } }) => {
      const id = oidc.result?.consent?.grantId
      return id === undefined ? undefined : oidc.provider?.Grant.find(id)
    },
  }
}
