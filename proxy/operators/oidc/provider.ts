import { createPublicKey, type JsonWebKey } from 'node:crypto'
import {
  createLocalJWKSet,
  errors,
  type JSONWebKeySet,
  type JWTPayload,
  type JWTVerifyGetKey,
  type JWTVerifyOptions,
  jwtVerify,
} from 'jose'
import * as client from 'openid-client'
import type { Logger } from 'pino'
import { isObject } from '../../../db/support/json.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'
import { egressAgent, type ResolveHost } from '../../egress/agent.ts'
import type { OidcOptions } from '../options.ts'
import { PROVIDER_ANSWER_MS, ProviderUnavailable, providerFetch } from './provider-fetch.ts'

/** The time that an answer of the provider is kept. ms. */
const MAX_CACHE_AGE_MS = 3_600_000
/** The least time between two questions, if one failed or somebody wants a newer answer. ms. */
const MIN_REFETCH_MS = 60_000

interface TimedAnswer<T> {
  /** ms of the monotonic clock. */
  readonly at: number
  readonly value: Promise<T>
}

/**
 * An answer of the identity provider. It is asked for when it is first needed, kept for an hour, and asked
 * for once by all who wait for it. A failure is everybody's for a minute: strangers make no more requests
 * than that.
 */
class CachedAnswer<T> {
  readonly #ask: () => Promise<T>
  readonly #now: MonotonicClock
  #answer: TimedAnswer<T> | null = null
  #failed = false

  constructor(ask: () => Promise<T>, now: MonotonicClock) {
    this.#ask = ask
    this.#now = now
  }

  get(): Promise<T> {
    const keptMs = this.#failed ? MIN_REFETCH_MS : MAX_CACHE_AGE_MS
    return this.#answer && this.#now() - this.#answer.at < keptMs ? this.#answer.value : this.#asked()
  }

  /** Like {@link get}, but newer than its last answer, unless that is less than a minute old: then null. */
  refetch(): Promise<T> | null {
    return this.#answer && this.#now() - this.#answer.at < MIN_REFETCH_MS ? null : this.#asked()
  }

  #asked(): Promise<T> {
    const answer: TimedAnswer<T> = { at: this.#now(), value: this.#ask() }
    this.#answer = answer
    this.#failed = false
    answer.value.catch(() => {
      if (this.#answer === answer) this.#failed = true
    })
    return answer.value
  }
}

/** The most that the clocks of the provider and of this machine may differ. Seconds. */
const CLOCK_TOLERANCE_S = 30

/**
 * Signatures by a key that the provider alone has. Never a shared one: `HS256` with a public key is
 * anybody's.
 */
const ALGORITHMS: readonly string[] = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
]

/** The identity provider as its discovery document describes it. */
export interface DiscoveredProvider {
  readonly configuration: client.Configuration
  readonly algorithms: readonly string[]
  /** The provider's page to end a session (OpenID Connect RP-Initiated Logout 1.0); null: none. */
  readonly endSession: URL | null
  readonly jwksUri: string
}

/**
 * The identity provider of one configuration (OpenID Connect Discovery 1.0). Asked for nothing before
 * somebody signs in. A question that it cannot answer rejects with {@link ProviderUnavailable}.
 */
export class IdentityProvider {
  readonly options: OidcOptions
  readonly #origins: Set<string>
  readonly #fetch: ReturnType<typeof providerFetch>
  readonly #discovered: CachedAnswer<DiscoveredProvider>
  readonly #keys: CachedAnswer<JWTVerifyGetKey>
  readonly #log: Pick<Logger, 'warn'>

  /** `resolve`: how its names are looked up. Default: apart from all others. */
  constructor(options: OidcOptions, now: MonotonicClock, log: Pick<Logger, 'warn'>, resolve?: ResolveHost) {
    this.options = options
    this.#log = log
    this.#origins = new Set([new URL(options.issuer).origin])
    // The operator's own choice, which may be on a private network; metadata services are refused all the
    // same.
    const agent = egressAgent({
      allowPrivate: true,
      connectMs: PROVIDER_ANSWER_MS,
      answerMs: PROVIDER_ANSWER_MS,
      keepAlive: false,
      ...(resolve && { resolve }),
    })
    this.#fetch = providerFetch(agent, ({ origin }) => this.#origins.has(origin))
    this.#discovered = new CachedAnswer(() => this.#discover(), now)
    this.#keys = new CachedAnswer(() => this.#readKeys(), now)
  }

  discovered(): Promise<DiscoveredProvider> {
    return this.#discovered.get()
  }

  /**
   * Verifies a token of the provider's, for this client unless `more` names another audience: its signature by
   * one of the provider's keys and algorithms, issuer, audience and times. `at`: ms since the epoch. `mostS`:
   * how old it may be. Rejects with jose's own errors.
   */
  async verify(
    token: string,
    at: number,
    mostS: number,
    more: Pick<JWTVerifyOptions, 'audience' | 'requiredClaims' | 'typ'>,
  ): Promise<JWTPayload> {
    const { algorithms } = await this.discovered()
    const options: JWTVerifyOptions = {
      audience: this.options.client_id,
      ...more,
      algorithms: [...algorithms],
      issuer: this.options.issuer,
      clockTolerance: CLOCK_TOLERANCE_S,
      currentDate: new Date(at),
      // Refuses tokens issued in the future, too.
      maxTokenAge: mostS,
    }
    try {
      return (await jwtVerify(token, this.#key, options)).payload
    } catch (error) {
      if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error
      return verifyByOne(token, error, options)
    }
  }

  // A key that is not known may be new. It is asked for once in a minute, whoever names it.
  readonly #key: JWTVerifyGetKey = async (header, token) => {
    const known = await this.#keys.get()
    try {
      return await known(header, token)
    } catch (error) {
      const newer = error instanceof errors.JWKSNoMatchingKey ? await this.#keys.refetch() : null
      if (!newer) throw error
      return await newer(header, token)
    }
  }

  async #discover(): Promise<DiscoveredProvider> {
    const { issuer, client_id: id } = this.options
    const url = new URL(issuer)
    const options: client.DiscoveryRequestOptions = {
      [client.customFetch]: this.#fetch,
      timeout: PROVIDER_ANSWER_MS / 1000,
      // Only this machine's: proxy/operators/options.ts refuses any other.
      ...(url.protocol === 'http:' && { execute: [client.allowInsecureRequests] }),
    }
    const metadata = { client_secret: this.options.client_secret, [client.clockTolerance]: CLOCK_TOLERANCE_S }
    try {
      const found = await client.discovery(url, id, metadata, this.#authentication, options)
      return this.#checked(found)
    } catch (error) {
      if (error instanceof ProviderUnavailable) throw error
      const named = issuerNamed(error)
      throw named === null ? unavailable('its discovery failed', error) : otherIssuer(named, error)
    }
  }

  /** RFC 8414 §2: if it does not say, it takes `client_secret_basic`. */
  readonly #authentication: client.ClientAuth = (server, ...rest) => {
    const { token_endpoint_auth_methods_supported: methods } = server
    const basic = methods?.includes('client_secret_basic') ?? true
    const secret = this.options.client_secret
    return basic
      ? client.ClientSecretBasic(secret)(server, ...rest)
      : client.ClientSecretPost(secret)(server, ...rest)
  }

  #checked(configuration: client.Configuration): DiscoveredProvider {
    const { issuer } = this.options
    const server = configuration.serverMetadata()
    const { id_token_signing_alg_values_supported: listed = ['RS256'], jwks_uri: jwksUri } = server
    // The library compares addresses, and two texts may be one address.
    if (server.issuer !== issuer) throw otherIssuer(server.issuer)
    const named = [server.authorization_endpoint, server.token_endpoint, jwksUri]
    for (const endpoint of named) this.#originOf(endpoint)
    this.#origins.add(this.#originOf(server.token_endpoint)).add(this.#originOf(jwksUri))
    return {
      configuration,
      algorithms: ALGORITHMS.filter((algorithm) => listed.includes(algorithm)),
      endSession: endSessionOf(configuration, () => this.#originOf(server.end_session_endpoint)),
      jwksUri: jwksUri ?? '',
    }
  }

  /** Requires an endpoint as safe as the issuer: https, or http if both are on this machine. */
  #originOf(endpoint: string | undefined): string {
    const url = endpoint === undefined ? null : URL.parse(endpoint)
    const issuer = new URL(this.options.issuer)
    const isLocal =
      issuer.protocol === 'http:' && url?.protocol === 'http:' && url.hostname === issuer.hostname
    if (!url || !(url.protocol === 'https:' || isLocal))
      throw new ProviderUnavailable(
        `its discovery document names ${endpoint?.slice(0, 256) ?? 'no endpoint'}`,
      )
    return url.origin
  }

  async #readKeys(): Promise<JWTVerifyGetKey> {
    const { jwksUri } = await this.discovered()
    const answer = await this.#fetch(jwksUri, { method: 'GET', headers: { accept: 'application/json' } })
    try {
      if (answer.status !== 200) throw new Error(`it answered ${answer.status}`)
      const { keys, odd } = usableKeys(await answer.json())
      if (odd.length > 0)
        this.#log.warn({ keys: odd.slice(0, MAX_ODD_KEYS) }, 'keys of the identity provider are left out')
      return createLocalJWKSet({ keys })
    } catch (error) {
      throw unavailable('its keys cannot be read', error)
    }
  }
}

/** The keys of one name that are tried. */
const MAX_NAMESAKES = 4
/** The keys that are left out, and named in the log. */
const MAX_ODD_KEYS = 8

/** Verifies a token that several keys of the set could have signed: a provider that rotates may name none. */
async function verifyByOne(
  token: string,
  several: errors.JWKSMultipleMatchingKeys,
  options: JWTVerifyOptions,
): Promise<JWTPayload> {
  let tried = 0
  for await (const key of several) {
    try {
      return (await jwtVerify(token, key, options)).payload
    } catch (error) {
      tried += 1
      if (!(error instanceof errors.JWSSignatureVerificationFailed) || tried === MAX_NAMESAKES) throw error
    }
  }
  throw several
}

/** Returns the issuer of a document that the library refuses because of it alone; null: another fault. */
function issuerNamed(error: unknown): string | null {
  const found = error instanceof client.ClientError && isObject(error.cause) ? error.cause : {}
  const issuer = found.attribute === 'issuer' && isObject(found.body) ? found.body.issuer : null
  return typeof issuer === 'string' ? issuer.slice(0, 256) : null
}

const otherIssuer = (named: string, cause?: unknown): ProviderUnavailable =>
  new ProviderUnavailable(
    `it calls itself ${JSON.stringify(named)}: if that is right, write it so as oidc.issuer, to the letter`,
    { cause },
  )

const unavailable = (what: string, cause: unknown): ProviderUnavailable =>
  new ProviderUnavailable(what, { cause })

function endSessionOf(configuration: client.Configuration, check: () => unknown): URL | null {
  if (configuration.serverMetadata().end_session_endpoint === undefined) return null
  check()
  return client.buildEndSessionUrl(configuration)
}

/** The keys of a set, and what else stands in it, each as half a sentence. */
interface SortedKeys extends JSONWebKeySet {
  readonly odd: readonly string[]
}

/** Leaves out what is no key for signatures, which would cost the others. Throws for what is no set. */
function usableKeys(set: unknown): SortedKeys {
  if (!isObject(set) || !Array.isArray(set.keys)) throw new Error('it gave no set of keys')
  const keys = set.keys.slice(0, MAX_KEYS).filter((key: unknown) => !isObject(key) || key.use !== 'enc')
  const faults = keys.map(keyFault)
  return {
    keys: keys.filter((_, i) => faults[i] === null),
    odd: faults.filter((fault) => fault !== null),
  }
}

/** The keys of a set that are read: providers have a handful. */
const MAX_KEYS = 100
const MIN_RSA_BITS = 2048

function keyFault(jwk: unknown): string | null {
  if (!isObject(jwk)) return 'a value is no key'
  const named = `the key ${JSON.stringify(jwk.kid ?? null).slice(0, 64)}`
  try {
    const { type, asymmetricKeyDetails } = createPublicKey({ key: jwk as JsonWebKey, format: 'jwk' })
    const { modulusLength = MIN_RSA_BITS } = asymmetricKeyDetails ?? {}
    if (type === 'public' && !('d' in jwk) && modulusLength >= MIN_RSA_BITS) return null
    return `${named} is ${'d' in jwk ? 'a private one' : `RSA of ${modulusLength} bits`}`
  } catch {
    return `${named} cannot be read`
  }
}
