import { createHash } from 'node:crypto'
import type { Agent } from 'undici'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { type EgressOptions, egressAgent } from '../../egress/agent.ts'
import { SecretReferenceError } from '../../egress/secret-reference.ts'
import { failed } from './errors.ts'

/** The time that a secret that was read is believed. ms. A rotated one is used at most so much later. */
const SECRET_AGE_MS = 10_000
/** A shorter secret would be found in messages that have nothing to do with it. Characters. */
const SHORTEST_TRACE = 8
/** An agent that nothing has gone through for so long is given up. ms. */
const AGENT_IDLE_MS = 600_000

/** The credentials that a resource is called with. */
export interface UpstreamCredentials {
  readonly headers: Readonly<Record<string, string>>
  /** PEM, for `mtls` only. */
  readonly tls: { readonly cert: string; readonly key: string } | null
  /**
   * The spellings of the secret in a message. None for `mtls`: a private key is never sent, so none can come
   * back.
   */
  readonly traces: readonly Buffer[]
}

/** The connection to a resource, as it is now. */
export interface Connection {
  readonly agent: Agent
  readonly url: URL
  readonly credentials: UpstreamCredentials
}

interface SecretSource {
  /** Reads `env:MCP_SECRET_…` or `file:/path`. */
  readonly secret: (reference: string) => Promise<string>
  readonly clock: () => number
}

export interface ConnectionOptions extends Omit<EgressOptions, 'tls' | 'keepAlive'>, SecretSource {}

export interface Connections {
  /** Throws McpUpstreamError `failed` where the resource's credentials or its endpoint cannot be used. */
  readonly of: (resource: McpResource) => Promise<Connection>
  /** Gives up the agents that have not been used lately. Requests under way on them go on. */
  readonly sweep: (at: number) => void
  /** Ends every connection at once. */
  readonly close: () => Promise<void>
}

interface Entry {
  readonly agent: Agent
  usedAt: number
}

/**
 * Opens one agent for each revision of a resource and each certificate it shows, so that no two resources
 * share a connection and none outlives a change of its endpoint. Does NOT look at who calls: only sessions
 * belong to callers.
 */
export function openConnections(options: ConnectionOptions): Connections {
  const { secret, clock, allowPrivate, connectMs, answerMs, resolve } = options
  const egress: EgressOptions = { allowPrivate, connectMs, answerMs, ...(resolve && { resolve }) }
  const credentialsOf: CredentialsOf = credentialsReader({ secret, clock })
  const agents = new Map<string, Entry>()

  const agentOf = (resource: McpResource, { tls }: UpstreamCredentials): Agent => {
    const certificate =
      tls === null ? '' : createHash('sha256').update(tls.key).update(tls.cert).digest('hex')
    const key = `${resource.resource_id} ${resource.revision} ${certificate}`
    const entry = agents.get(key) ?? { agent: egressAgent({ ...egress, ...(tls && { tls }) }), usedAt: 0 }
    agents.set(key, entry)
    entry.usedAt = clock()
    return entry.agent
  }

  return {
    async of(resource) {
      const url = endpointOf(resource)
      const credentials = await credentialsOf(resource)
      return { url, credentials, agent: agentOf(resource, credentials) }
    },
    sweep(at) {
      for (const [key, { agent, usedAt }] of agents) {
        if (at - usedAt < AGENT_IDLE_MS) continue
        agents.delete(key)
        void agent.close()
      }
    },
    async close() {
      const open = [...agents.values()]
      agents.clear()
      await Promise.all(open.map(({ agent }) => agent.destroy()))
    },
  }
}

/**
 * Reads the endpoint. Registration has checked all of this; a row that somebody else wrote has passed no
 * check.
 */
function endpointOf({ endpoint_url: text, allowed_domains: domains }: McpResource): URL {
  const url = URL.parse(text)
  if (url === null || !/^https?:$/.test(url.protocol))
    throw failed('its endpoint is not an http or https URL')
  if (url.username !== '' || url.password !== '') throw failed('its endpoint names a user')
  if (domains.length > 0 && !domains.includes(url.hostname))
    throw failed('its endpoint is not of its domains')
  return url
}

type CredentialsOf = (resource: McpResource) => Promise<UpstreamCredentials>

const NONE: UpstreamCredentials = { headers: {}, tls: null, traces: [] }

/**
 * Makes the function that reads a resource's credentials. Secrets are read when needed and kept for 10 s.
 * It throws McpUpstreamError `failed` where a secret cannot be read or cannot serve as what it should be.
 */
function credentialsReader({ secret, clock }: SecretSource): CredentialsOf {
  const known = new Map<string, { readonly at: number; readonly text: Promise<string> }>()

  const read = (reference: string): Promise<string> => {
    const at = clock()
    const entry = known.get(reference)
    if (entry && at >= entry.at && at - entry.at < SECRET_AGE_MS) return entry.text
    const text = secret(reference)
    known.set(reference, { at, text })
    // A secret that could not be read is read again at once, not after ten seconds.
    text.catch(() => known.delete(reference))
    return text
  }

  return async ({ auth_type, auth_secret_ref }) => {
    if (auth_type === 'none') return NONE
    if (auth_secret_ref === null) throw failed('no secret is named for its credentials')
    let text: string
    try {
      text = await read(auth_secret_ref)
    } catch (error) {
      if (error instanceof SecretReferenceError) throw failed(`its auth_secret_ref ${error.message}`)
      throw failed('the secret of its credentials cannot be read', { cause: error })
    }
    return auth_type === 'mtls' ? certificateOf(text) : headerOf(auth_type, text)
  }
}

/**
 * Tells whether a message holds the secret that its sender was called with. Compares bytes; decodes nothing.
 */
export const echoes = ({ traces }: UpstreamCredentials, message: Buffer): boolean =>
  traces.some((trace) => message.includes(trace))

function headerOf(type: 'bearer' | 'api_key', secret: string): UpstreamCredentials {
  if (!/^[\x21-\x7e]+$/.test(secret)) throw failed('the secret of its credentials cannot stand in a header')
  const headers = type === 'bearer' ? { authorization: `Bearer ${secret}` } : { 'x-api-key': secret }
  return { headers: Object.freeze(headers), tls: null, traces: tracesOf(secret) }
}

/** Returns the secret as it is, and in the two forms that JSON writers escape it to. */
function tracesOf(secret: string): Buffer[] {
  if (secret.length < SHORTEST_TRACE) return []
  const escaped = JSON.stringify(secret).slice(1, -1)
  return [...new Set([secret, escaped, escaped.replaceAll('/', '\\/')])].map((text) => Buffer.from(text))
}

function certificateOf(pem: string): UpstreamCredentials {
  const cert = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g)?.join('\n')
  const key = /-----BEGIN ([A-Z ]*)PRIVATE KEY-----[^-]+-----END \1PRIVATE KEY-----/.exec(pem)?.[0]
  if (cert === undefined || key === undefined) {
    throw failed('the secret of its credentials is not a certificate and its private key in PEM')
  }
  return { headers: {}, tls: { cert, key }, traces: [] }
}
