import { createHash } from 'node:crypto'
import type { Agent } from 'undici'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { type EgressOptions, egressAgent } from '../../egress/agent.ts'
import { type CredentialsOf, credentialsReader, type UpstreamCredentials } from './credentials.ts'
import { failed } from './errors.ts'

/** An agent that nothing has gone through for so long is given up. ms. */
const AGENT_IDLE_MS = 600_000

/** The way to a resource, as it is now. */
export interface Connection {
  readonly agent: Agent
  readonly url: URL
  readonly credentials: UpstreamCredentials
}

export interface ConnectionOptions extends Omit<EgressOptions, 'tls' | 'keepAlive'> {
  readonly secret: (reference: string) => Promise<string>
  readonly clock: () => number
}

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
