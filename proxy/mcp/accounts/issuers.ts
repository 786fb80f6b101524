import type { ServerMetadata } from 'openid-client'
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { MonotonicClock } from '../../../plugins/secrets/throttle.ts'
import { type AccountResource, IssuerUnavailable } from './accounts.ts'
import { type IssuerFetch, isSafeAddress } from './issuer-fetch.ts'

/** The time that metadata are kept. ms. */
const MAX_AGE_MS = 3_600_000
const MAX_KEPT = 1_000
/** Characters of an issuer, and of an address in its metadata. */
const MAX_ADDRESS = 512
/** RFC 9728 §3, RFC 8414 §3. */
const RESOURCE_DOCUMENT = '/.well-known/oauth-protected-resource'
const SERVER_DOCUMENTS = ['/.well-known/oauth-authorization-server', '/.well-known/openid-configuration']

/** The authorization server of an MCP server. */
export interface FoundServer {
  readonly server: ServerMetadata
  /** The name of the MCP server there: `resource` of RFC 8707. */
  readonly audience: string
}

interface IssuerDirectoryOptions {
  readonly fetch: IssuerFetch
  readonly allowPrivate: boolean
  readonly now: MonotonicClock
}

interface KeptAnswer<T> {
  readonly at: number
  readonly value: Promise<T>
}

/**
 * Finds authorization servers (RFC 9728, then RFC 8414 or OpenID Connect Discovery). Answers are kept for an
 * hour, failures not at all; all who wait share one question. Rejects with {@link IssuerUnavailable}.
 */
export class IssuerDirectory {
  readonly #options: IssuerDirectoryOptions
  readonly #found = boundedCache<KeptAnswer<FoundServer>>(MAX_KEPT)
  readonly #servers = boundedCache<KeptAnswer<ServerMetadata>>(MAX_KEPT)

  constructor(options: IssuerDirectoryOptions) {
    this.#options = options
  }

  /** Finds the server of a resource: the one that its settings name, or that it names itself. */
  of({ endpoint_url: endpoint, oauth }: AccountResource): Promise<FoundServer> {
    const named = oauth?.issuer
    return this.#kept(this.#found, JSON.stringify([endpoint, named]), () => this.#find(endpoint, named))
  }

  /** Reads the metadata of an issuer. `isNamed`: an operator has named it. */
  server(issuer: string, isNamed: boolean): Promise<ServerMetadata> {
    return this.#kept(this.#servers, JSON.stringify([issuer, isNamed]), () => this.#read(issuer, isNamed))
  }

  async #kept<T>(
    all: {
      get: (key: string) => KeptAnswer<T> | undefined
      set: (key: string, one: KeptAnswer<T>) => unknown
      delete: (key: string) => unknown
    },
    key: string,
    ask: () => Promise<T>,
  ): Promise<T> {
    const now = this.#options.now()
    const known = all.get(key)
    if (known && now - known.at < MAX_AGE_MS) return known.value
    const answer = { at: now, value: ask() }
    all.set(key, answer)
    try {
      return await answer.value
    } catch (error) {
      all.delete(key)
      throw error
    }
  }

  async #find(text: string, named: string | undefined): Promise<FoundServer> {
    const endpoint = new URL(text)
    const own = `${endpoint.origin}${endpoint.pathname}`.replace(/\/$/, '')
    const document = await this.#resourceDocument(endpoint).catch((error: unknown) => {
      if (named !== undefined && error instanceof IssuerUnavailable) return null
      throw error
    })
    const audience = document ? audienceOf(document, endpoint) : own
    const issuer = named ?? (document ? issuerOf(document) : endpoint.origin)
    return { server: await this.server(issuer, named !== undefined), audience }
  }

  /** Null: the server publishes none. */
  async #resourceDocument(endpoint: URL): Promise<UnknownRecord | null> {
    const path = endpoint.pathname.replace(/\/$/, '')
    for (const place of new Set([`${RESOURCE_DOCUMENT}${path}`, RESOURCE_DOCUMENT])) {
      const found = await this.#json(new URL(place, endpoint.origin))
      if (found) return found
    }
    return null
  }

  async #read(issuer: string, isNamed: boolean): Promise<ServerMetadata> {
    const url = URL.parse(issuer)
    if (!url || issuer.length > MAX_ADDRESS || url.search !== '' || url.hash !== '')
      throw new IssuerUnavailable('the issuer is not an address')
    for (const place of documentsOf(url)) {
      const found = await this.#json(place)
      if (found) return this.#checked(found, issuer, isNamed)
    }
    throw new IssuerUnavailable(`${url.origin} publishes no metadata of an authorization server`)
  }

  /** Null: there is no such document. */
  async #json(url: URL): Promise<UnknownRecord | null> {
    const answer = await this.#options.fetch(url, { method: 'GET', headers: { accept: 'application/json' } })
    if (answer.status !== 200) return null
    const value: unknown = await answer.json().catch(() => null)
    return isObject(value) ? value : null
  }

  #checked(found: UnknownRecord, issuer: string, isNamed: boolean): ServerMetadata {
    const { issuer: said, code_challenge_methods_supported: methods } = found
    if (said !== issuer && !(isRoot(issuer) && said === `${issuer}/`))
      throw new IssuerUnavailable(`${new URL(issuer).origin} calls itself another issuer`)
    const isSaid = Array.isArray(methods) ? methods.includes('S256') : methods === undefined && isNamed
    if (!isSaid) throw new IssuerUnavailable(`${new URL(issuer).origin} does not offer PKCE (S256)`)
    for (const name of ['authorization_endpoint', 'token_endpoint'])
      if (!this.#isAddress(found[name]))
        throw new IssuerUnavailable(`${new URL(issuer).origin} names no ${name} that can be used`)
    const { registration_endpoint, revocation_endpoint, ...rest } = found
    return {
      ...rest,
      issuer: said,
      ...(this.#isAddress(registration_endpoint) && { registration_endpoint }),
      ...(this.#isAddress(revocation_endpoint) && { revocation_endpoint }),
    }
  }

  #isAddress(value: unknown): value is string {
    if (typeof value !== 'string' || value.length > MAX_ADDRESS) return false
    const url = URL.parse(value)
    return url !== null && url.hash === '' && isSafeAddress(url, this.#options.allowPrivate)
  }
}

const isRoot = (issuer: string): boolean => new URL(issuer).origin === issuer

function documentsOf(issuer: URL): readonly URL[] {
  const path = issuer.pathname.replace(/\/$/, '')
  const places = SERVER_DOCUMENTS.map((place) => `${place}${path}`)
  if (path !== '') places.push(`${path}/.well-known/openid-configuration`)
  return places.map((place) => new URL(place, issuer.origin))
}

/** Reads the name of the resource: that of the endpoint, or of what it is below. */
function audienceOf({ resource }: UnknownRecord, endpoint: URL): string {
  const url = typeof resource === 'string' && resource.length <= MAX_ADDRESS ? URL.parse(resource) : null
  const isAbove = url && `${endpoint.pathname}/`.startsWith(`${url.pathname.replace(/\/$/, '')}/`)
  if (typeof resource === 'string' && isAbove && url.origin === endpoint.origin && url.hash === '')
    return resource
  throw new IssuerUnavailable(`${endpoint.origin} calls itself another resource`)
}

function issuerOf({ authorization_servers: servers }: UnknownRecord): string {
  const [first]: readonly unknown[] = Array.isArray(servers) ? servers : []
  if (typeof first === 'string') return first
  throw new IssuerUnavailable('the server names no authorization server')
}
