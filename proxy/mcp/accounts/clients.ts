import * as client from 'openid-client'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import {
  findUpstreamClient,
  insertUpstreamClient,
  type OAuthSettings,
  removeUpstreamClient,
} from '../../../db/mcp/accounts.ts'
import { isObject } from '../../../db/support/json.ts'
import { ACCOUNT_CALLBACK, CLIENT_DOCUMENT, type FoundIssuer, IssuerUnavailable } from './accounts.ts'
import type { IssuerFetch } from './issuer-fetch.ts'
import type { AccountVault, OurClient } from './vault.ts'

/** Characters of an id or a secret that an issuer gives us. */
const MAX_CLIENT = 1_024

/** Makes the metadata of our client; `id`: the address that they are published at. */
export const clientDocument = (peopleUrl: string, id?: string) => ({
  ...(id !== undefined && { client_id: id }),
  client_name: 'Sallyport',
  client_uri: peopleUrl,
  redirect_uris: [`${peopleUrl}${ACCOUNT_CALLBACK}`],
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
})

interface ClientsOptions {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly vault: AccountVault
  readonly fetch: IssuerFetch
  /** Reads the secret of a reference. */
  readonly secret: (reference: string) => Promise<string>
  /** MCP_PROXY_PEOPLE_URL. Null: nobody can connect an account here. */
  readonly peopleUrl: string | null
  readonly allowPrivate: boolean
  readonly clock: () => number
}

/** Knows by which client issuers know this service. */
export class OurClients {
  readonly #options: ClientsOptions

  constructor(options: ClientsOptions) {
    this.#options = options
  }

  /** Tells the kind of client at an issuer, and registers nothing. */
  kindAt(server: client.ServerMetadata, settings: OAuthSettings): FoundIssuer['client'] {
    if (settings.client_id !== undefined) return 'configured'
    if (server.client_id_metadata_document_supported === true) return 'document'
    if (server.registration_endpoint !== undefined) return 'registered'
    throw new IssuerUnavailable(`${server.issuer} knows no client of this service: name a client_id`)
  }

  /** Finds our client at an issuer, or registers one. */
  async at(server: client.ServerMetadata, settings: OAuthSettings): Promise<OurClient> {
    const kind = this.kindAt(server, settings)
    const { client_id: id, client_secret_ref: secretRef = null } = settings
    if (id !== undefined) return { kind, id, secret: null, secretRef }
    const url = this.#peopleUrl()
    if (kind === 'document') return { kind, id: `${url}${CLIENT_DOCUMENT}`, secret: null, secretRef: null }
    return (await this.#registered(server.issuer)) ?? this.#register(server, url)
  }

  /** Makes the library's view of an issuer and our client there. */
  async configuration(server: client.ServerMetadata, ours: OurClient): Promise<client.Configuration> {
    const { fetch, allowPrivate } = this.#options
    const secret = await this.#secretOf(ours)
    const made = new client.Configuration(server, ours.id, undefined, authenticationAt(server, secret))
    made[client.customFetch] = fetch
    // The fetch itself refuses http to any other address.
    if (allowPrivate && isLocal(server)) client.allowInsecureRequests(made)
    return made
  }

  /** Forgets a registration that its issuer has forgotten. */
  async forget(issuer: string): Promise<void> {
    const { database, ledger } = this.#options
    const stored = await findUpstreamClient(database, issuer)
    if (stored !== undefined)
      await ledger.commit({ statements: [removeUpstreamClient(database, issuer, stored)], entries: [] })
  }

  async #secretOf({ secret, secretRef }: OurClient): Promise<string | null> {
    if (secretRef === null) return secret
    return this.#options.secret(secretRef).catch(() => {
      throw new IssuerUnavailable('the secret of our client there cannot be read')
    })
  }

  async #registered(issuer: string): Promise<OurClient | null> {
    const { database, vault, clock } = this.#options
    const stored = await findUpstreamClient(database, issuer)
    const opened = stored === undefined ? null : vault.openClient(issuer, stored)
    const url = this.#peopleUrl()
    if (
      opened &&
      opened.redirect === `${url}${ACCOUNT_CALLBACK}` &&
      (opened.until === null || clock() < opened.until)
    )
      return { kind: 'registered', id: opened.id, secret: opened.secret, secretRef: null }
    // Of another address of ours, or over.
    if (stored !== undefined) await this.forget(issuer)
    return null
  }

  /** Registers (RFC 7591), and keeps it for all who share the database. */
  async #register(server: client.ServerMetadata, url: string): Promise<OurClient> {
    const { database, ledger, vault, fetch } = this.#options
    const { issuer, registration_endpoint: endpoint = '' } = server
    const answer = await fetch(endpoint, {
      method: 'POST',
      headers: { accept: 'application/json', 'content-type': 'application/json' },
      body: JSON.stringify(clientDocument(url)),
    })
    const said: unknown = await answer.json().catch(() => null)
    if (answer.status >= 400 || !isObject(said) || !isShort(said.client_id))
      throw new IssuerUnavailable(`${issuer} does not register this service`)
    const { client_id: id, client_secret: secret, client_secret_expires_at: endS } = said
    const made = {
      ...{ id, secret: isShort(secret) ? secret : null, redirect: `${url}${ACCOUNT_CALLBACK}` },
      until: typeof endS === 'number' && endS > 0 ? endS * 1000 : null,
    }
    await ledger.commit({
      statements: [insertUpstreamClient(database, issuer, vault.sealClient(issuer, made))],
      entries: [],
    })
    // Another process may have been first: all use that one.
    return (
      (await this.#registered(issuer)) ?? { kind: 'registered', id, secret: made.secret, secretRef: null }
    )
  }

  #peopleUrl(): string {
    const { peopleUrl } = this.#options
    if (peopleUrl === null) throw new IssuerUnavailable('the listener for people is closed here')
    return peopleUrl
  }
}

const isShort = (value: unknown): value is string =>
  typeof value === 'string' && value !== '' && value.length <= MAX_CLIENT

/** RFC 8414 §2: a server that does not say takes `client_secret_basic`. */
function authenticationAt(server: client.ServerMetadata, secret: string | null): client.ClientAuth {
  if (secret === null) return client.None()
  const { token_endpoint_auth_methods_supported: methods } = server
  const isBasic = methods?.includes('client_secret_basic') ?? true
  return isBasic ? client.ClientSecretBasic(secret) : client.ClientSecretPost(secret)
}

const isLocal = ({ issuer, token_endpoint, revocation_endpoint }: client.ServerMetadata): boolean =>
  [issuer, token_endpoint, revocation_endpoint].some((url) => url?.startsWith('http:'))
