import { createHash } from 'node:crypto'
import type { Agent } from 'undici'
import { HostNameCache } from '../../../db/host-names/kept-names.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { clientKeyFault } from '../../../db/support/client-key.ts'
import {
  MIN_TRACED_CHARACTERS,
  quotesSecret,
  type SecretTraces,
  secretTraces,
} from '../../../plugins/secrets/traces.ts'
import { type EgressOptions, egressAgent } from '../../egress/agent.ts'
import { SecretReferenceError } from '../../egress/secret-reference.ts'
import { mcpUpstreamFailure } from './errors.ts'

/** The time that a secret that was read is believed. ms. A rotated one is used at most so much later. */
const SECRET_AGE_MS = 10_000
/** An agent that nothing has gone through for so long is given up. ms. */
const AGENT_IDLE_MS = 600_000

export interface UpstreamCredentials {
  readonly headers: Readonly<Record<string, string>>
  /** PEM, for `mtls` only. */
  readonly tls: { readonly cert: string; readonly key: string } | null
  /**
   * Traces of the secret, and of those in the endpoint's query. None for `mtls`: a private key is never sent.
   */
  readonly traces: SecretTraces
}

/** The account of a caller at a server (docs/accounts.md). Its messages go by it, and by nothing else. */
export interface CallerAccount {
  /** Names it: no two accounts share a session or a connection. */
  readonly id: string
  /** Makes the credentials of one request. Rejects with the reason why there are none. */
  readonly authorize: (request: AuthorizedRequest) => Promise<AccountCredentials>
  /**
   * Judges a refusal of the server, 401 or 403: true if the request is worth sending once more. Rejects with
   * the reason why its person must be asked.
   */
  readonly renews: (refused: RefusedAuthorization) => Promise<boolean>
}

interface AuthorizedRequest {
  readonly method: string
  readonly url: string
}

interface AccountCredentials {
  readonly headers: Readonly<Record<string, string>>
  readonly secrets: readonly string[]
}

export interface RefusedAuthorization {
  readonly status: number
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
}

export interface McpConnection {
  readonly agent: Agent
  readonly origin: string
  /** With the query. */
  readonly path: string
  /** Headers of the credentials, names and values in turn. */
  readonly headers: readonly string[]
  readonly credentials: UpstreamCredentials
  /** The limit that its agent keeps. ms. */
  readonly answerMs: number
}

interface CredentialsSource {
  readonly secret: (reference: string) => Promise<string>
  readonly clock: () => number
}

export interface ConnectionOptions extends Omit<EgressOptions, 'tls' | 'keepAlive'>, CredentialsSource {
  /** Asks whether operators have set a resource's address and credentials. Absent: they have. */
  readonly isSaid?: (resource: McpResource) => Promise<boolean>
}

export interface McpConnections {
  /**
   * Throws or rejects with McpUpstreamError if the resource's credentials or its endpoint cannot be used; as
   * the account does if it cannot be. `method`: of the one request that an account's connection is for.
   */
  readonly of: (
    resource: McpResource,
    account: CallerAccount | null,
    method?: string,
  ) => McpConnection | Promise<McpConnection>
  /** Gives up the agents that have not been used lately. Requests under way on them go on. */
  readonly sweep: (at: number) => void
  readonly close: () => Promise<void>
}

interface AgentEntry {
  readonly agent: Agent
  usedAt: number
}

interface CachedConnection {
  readonly connection: McpConnection
  readonly entry: AgentEntry
  readonly revision: number
  readonly secretReadAt: number
}

/** Opens one agent for each revision of a resource, and each certificate or account it shows. */
export function openConnections(options: ConnectionOptions): McpConnections {
  const { secret, clock, allowPrivate, connectMs, answerMs, resolve = new HostNameCache().resolve } = options
  const { isSaid = () => Promise.resolve(true) } = options
  const egress: EgressOptions = { allowPrivate, connectMs, answerMs, resolve }
  const credentialsOf: CredentialsOf = credentialsReader({ secret, clock })
  const agents = new Map<string, AgentEntry>()

  const known = new Map<string, CachedConnection>()

  const entryOf = (
    resource: McpResource,
    { tls }: UpstreamCredentials,
    account: CallerAccount | null,
  ): AgentEntry => {
    const certificate =
      tls === null ? '' : createHash('sha256').update(tls.key).update(tls.cert).digest('hex')
    const key = `${resource.resource_id} ${resource.revision} ${certificate} ${account?.id ?? ''}`
    const entry = agents.get(key) ?? { agent: egressAgent({ ...egress, ...(tls && { tls }) }), usedAt: 0 }
    agents.set(key, entry)
    entry.usedAt = clock()
    return entry
  }

  const made = async (resource: McpResource, account: CallerAccount | null): Promise<McpConnection> => {
    const { origin, pathname, search, searchParams } = endpointOf(resource)
    const { readAt: secretReadAt, credentials: loaded } = await credentialsOf(resource)
    if (!(await isSaid(resource))) throw mcpUpstreamFailure(EDITED)
    const inQuery = [...searchParams].flatMap(([name, value]) => (CREDENTIAL_NAME.test(name) ? [value] : []))
    const credentials = { ...loaded, traces: [...loaded.traces, ...tracesOf(inQuery)] }
    const entry = entryOf(resource, credentials, account)
    const headers = Object.entries(credentials.headers).flat()
    const path = `${pathname}${search}`
    const connection = { agent: entry.agent, origin, path, headers, credentials, answerMs }
    known.set(keyOf(resource, account), { connection, entry, revision: resource.revision, secretReadAt })
    return connection
  }

  const standing = (
    resource: McpResource,
    account: CallerAccount | null,
  ): McpConnection | Promise<McpConnection> => {
    const at = clock()
    const last = known.get(keyOf(resource, account))
    if (last?.revision !== resource.revision || !isBelieved(last.secretReadAt, at))
      return made(resource, account)
    last.entry.usedAt = at
    return last.connection
  }

  const byAccount = async (
    resource: McpResource,
    account: CallerAccount,
    method: string,
  ): Promise<McpConnection> => {
    const connection = await standing(resource, account)
    const { headers, secrets } = await account.authorize({ method, url: resource.endpoint_url })
    const traces = [...connection.credentials.traces, ...tracesOf(secrets)]
    const credentials = { headers, tls: null, traces }
    return { ...connection, headers: Object.entries(headers).flat(), credentials }
  }

  return {
    of(resource, account, method = 'POST') {
      if (resource.auth_type !== 'oauth') return standing(resource, null)
      if (account === null) throw mcpUpstreamFailure('it is called by accounts alone, and this call has none')
      return byAccount(resource, account, method)
    },
    sweep(at) {
      for (const [key, { agent, usedAt }] of agents) {
        if (at - usedAt < AGENT_IDLE_MS) continue
        agents.delete(key)
        void agent.close()
      }
      for (const [id, { entry }] of known) if (at - entry.usedAt >= AGENT_IDLE_MS) known.delete(id)
    },
    async close() {
      const open = [...agents.values()]
      agents.clear()
      known.clear()
      await Promise.all(open.map(({ agent }) => agent.destroy()))
    },
  }
}

const EDITED =
  'its address or credentials are not those that operators have set. Somebody has edited the database: run sallyport verify'

const keyOf = ({ resource_id: id }: McpResource, account: CallerAccount | null): string =>
  account === null ? id : `${id} ${account.id}`

/** Reads the endpoint. Registration has checked it; a row that somebody else wrote has passed no check. */
function endpointOf({ endpoint_url: text, allowed_domains: domains }: McpResource): URL {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol))
    throw mcpUpstreamFailure('its endpoint is not an http or https URL')
  if (url.username !== '' || url.password !== '') throw mcpUpstreamFailure('its endpoint names a user')
  if (domains.length > 0 && !domains.includes(url.hostname))
    throw mcpUpstreamFailure('its endpoint is not of its domains')
  return url
}

interface LoadedCredentials {
  readonly credentials: UpstreamCredentials
  readonly readAt: number
}

type CredentialsOf = (resource: McpResource) => Promise<LoadedCredentials>

/** Nothing was read, and nothing can change. */
const NONE: LoadedCredentials = {
  credentials: { headers: {}, tls: null, traces: [] },
  readAt: Number.POSITIVE_INFINITY,
}

const isBelieved = (readAt: number, at: number): boolean =>
  readAt === NONE.readAt || (at >= readAt && at - readAt < SECRET_AGE_MS)

/** Makes the reader of a resource's credentials, kept for 10 s. Throws McpUpstreamError. */
function credentialsReader({ secret, clock }: CredentialsSource): CredentialsOf {
  const known = new Map<string, { readonly at: number; readonly text: Promise<string> }>()

  const read = (reference: string): { readonly at: number; readonly text: Promise<string> } => {
    const at = clock()
    const last = known.get(reference)
    if (last && isBelieved(last.at, at)) return last
    const entry = { at, text: secret(reference) }
    known.set(reference, entry)
    // A secret that could not be read is read again at once, not after ten seconds.
    entry.text.catch(() => known.delete(reference))
    return entry
  }

  return async ({ auth_type, auth_secret_ref }) => {
    // An account makes its own, for each request.
    if (auth_type === 'none' || auth_type === 'oauth') return NONE
    if (auth_secret_ref === null) throw mcpUpstreamFailure('no secret is named for its credentials')
    const { at: readAt, text } = read(auth_secret_ref)
    const secretText = await text.catch((error: unknown) => {
      if (error instanceof SecretReferenceError)
        throw mcpUpstreamFailure(`its auth_secret_ref ${error.message}`)
      throw mcpUpstreamFailure('the secret of its credentials cannot be read', { cause: error })
    })
    const credentials = auth_type === 'mtls' ? certificateOf(secretText) : headerOf(auth_type, secretText)
    return { credentials, readAt }
  }
}

/** Tells whether a message holds the secret that its sender was called with, escaped or not. */
export const echoesSecret = ({ traces }: UpstreamCredentials, message: Buffer): boolean =>
  traces.length > 0 && quotesSecret(traces, message)

function headerOf(type: 'bearer' | 'api_key', secret: string): UpstreamCredentials {
  if (!/^[\x21-\x7e]+$/.test(secret))
    throw mcpUpstreamFailure('the secret of its credentials cannot stand in a header')
  const headers = type === 'bearer' ? { authorization: `Bearer ${secret}` } : { 'x-api-key': secret }
  return { headers: Object.freeze(headers), tls: null, traces: tracesOf([secret]) }
}

const tracesOf = (secrets: readonly string[]): SecretTraces =>
  secretTraces(secrets.filter(({ length }) => length >= MIN_TRACED_CHARACTERS))

/** Parameters of an endpoint's URL by which some servers are told who calls. */
const CREDENTIAL_NAME = /auth|code|credential|key|pass|secret|sig|token/i

function certificateOf(pem: string): UpstreamCredentials {
  const cert = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)?.join('\n')
  // The head of a key that is sealed in the older way has hyphens.
  const key = /-----BEGIN ([A-Z ]*)PRIVATE KEY-----[\s\S]+?-----END \1PRIVATE KEY-----/.exec(pem)?.[0]
  if (cert === undefined || key === undefined) {
    throw mcpUpstreamFailure('the secret of its credentials is not a certificate and its private key in PEM')
  }
  const fault = clientKeyFault(cert, key)
  if (fault !== null) throw mcpUpstreamFailure(`its client certificate cannot be used: ${fault}`)
  return { headers: {}, tls: { cert, key }, traces: [] }
}
