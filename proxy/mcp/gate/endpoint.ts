import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Principal } from '../../../plugins/facts.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { McpMessage } from '../protocol/message.ts'
import type { Registry } from '../state/registry.ts'
import type { CallerSession, CallerSessions } from '../state/sessions.ts'

interface Needs extends Arrival {
  readonly principal: Principal
  readonly message: McpMessage
}

/** The resource that the path names, and the caller's session. Given by `mcp_resource_path`. */
export interface ResourcePath {
  /** The resource of `/v1/mcp/{resource}`, which the principal is bound to; null at `/v1/mcp`. */
  readonly pathResource: McpResource | null
  /** The caller's legacy session, or null where it has none. */
  readonly session: CallerSession | null
}

/**
 * Finds the resource that the path names and the session of a legacy client. A resource that is unknown and
 * one without a binding are refused alike (`mcp_not_bound`): a path tells nobody which resources there are. A
 * session of another principal, or of another path, does not exist (`mcp_session_unknown`).
 */
export function mcpResourcePath(registry: Registry, sessions: CallerSessions): Plugin<Needs, ResourcePath> {
  return {
    name: 'mcp_resource_path',
    admit: async (facts) => {
      const pathResource = await resourceOf(registry, facts)
      return { pathResource, session: sessionOf(sessions, facts, pathResource) }
    },
  }
}

async function resourceOf(registry: Registry, { params, principal }: Needs): Promise<McpResource | null> {
  const { resource: name } = params
  if (name === undefined) return null
  const resource = await registry.resource(name)
  if (resource && (await registry.isBound(principal, resource))) return resource
  throw new Refusal('mcp_not_bound')
}

function sessionOf(
  sessions: CallerSessions,
  { headers, message, principal, at }: Needs,
  pathResource: McpResource | null,
): CallerSession | null {
  const id = headers['mcp-session-id']
  // The stateless revision knows no sessions and ignores the header; initialize begins a new one.
  if (id === undefined || message.era === 'modern' || message.method === 'initialize') return null
  const session = sessions.find(principal.id, String(id), at)
  if (session && session.resourceId === (pathResource?.resource_id ?? null)) return session
  throw new Refusal('mcp_session_unknown')
}
