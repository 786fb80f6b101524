import { createHash } from 'node:crypto'
import type { Json, JsonObject } from '../../../db/json.ts'
import type { McpResource, McpResourceFields } from '../../../db/mcp/resources.ts'
import type { McpTool } from '../../../db/mcp/tools.ts'
import { pendingChanges } from '../../mcp/pinning/tool-changes.ts'
import { capabilityOf } from '../../mcp/state/registry.ts'

/** A resource with its tools as operators see it (WIRE.md §2). The revision is the ETag, not a field. */
export const mcpResourceView = (
  resource: McpResource,
  tools: readonly McpTool[],
): Record<string, unknown> => ({
  resource_id: resource.resource_id,
  name: resource.name,
  description: resource.description,
  endpoint_url: resource.endpoint_url,
  auth_type: resource.auth_type,
  auth_secret_ref: resource.auth_secret_ref,
  required_capability: resource.required_capability,
  allowed_domains: resource.allowed_domains,
  enabled: resource.enabled,
  tool_capabilities: resource.tool_capabilities,
  era: resource.era,
  protocol_version: resource.protocol_version,
  last_read_at: resource.last_read_at,
  last_error: resource.last_error,
  created_at: resource.created_at,
  updated_at: resource.updated_at,
  tools: tools.map((tool) => toolView(resource, tool)),
})

/**
 * As {@link mcpResourceView}, with all that an operator must be able to look at before saying yes: what the server said of
 * itself, each definition whole, and the names in `tool_capabilities` that no tool has ever had.
 */
export const mcpResourceDetail = (
  resource: McpResource,
  tools: readonly McpTool[],
): Record<string, unknown> => ({
  ...mcpResourceView(resource, tools),
  server: serverOf(resource),
  unknown_tools: unknownTools(resource, tools),
  tools: tools.map((tool) => ({ ...toolView(resource, tool), ...definitionsOf(tool) })),
})

/** Null where it was never read. What it did not say is left out by JSON. */
function serverOf({ server_facts: facts }: McpResource): Record<string, unknown> | null {
  if (facts === null) return null
  const { capabilities, serverInfo, instructions } = facts
  return { capabilities, serverInfo, instructions }
}

/** Of a server that was never read nobody knows what it has. */
function unknownTools(
  { tool_capabilities: own, last_read_at: readAt }: McpResource,
  tools: readonly McpTool[],
): readonly string[] {
  if (readAt === null) return []
  const known = new Set(tools.map(({ name }) => name))
  return Object.keys(own).filter((name) => !known.has(name))
}

function definitionsOf({ state, definition, pending_definition: pending }: McpTool) {
  return {
    definition: definitionOf(definition),
    ...(state === 'quarantined' && { pending_definition: definitionOf(pending) }),
  }
}

function toolView(resource: McpResource, tool: McpTool): Record<string, unknown> {
  const { name, state, digest, pending_digest, flags, pinned_at, changed_at } = tool
  return {
    name,
    exposed_as: `${resource.name}.${name}`,
    required_capability: capabilityOf(resource, name),
    state,
    digest,
    pending_digest,
    flags,
    pinned_at,
    changed_at,
    ...(state === 'quarantined' && { changes: pendingChanges(tool) }),
  }
}

// Proven by the reader of tools: what is not an object was never stored.
const definitionOf = (text: string | null): Record<string, unknown> | null =>
  text === null ? null : (JSON.parse(text) as Record<string, unknown>)

/**
 * Fields of a resource as an audit row holds them. A URL's query may be a key, so only its digest stays; and names of
 * tools are values, since a row cannot hold every text as a name.
 */
export function auditedFields(fields: Partial<McpResourceFields>): JsonObject {
  const { endpoint_url: endpoint, tool_capabilities: own, ...rest } = fields
  const audited: Record<string, Json> = { ...rest }
  if (own !== undefined) audited.tool_capabilities = Object.entries(own)
  if (endpoint !== undefined) {
    const { origin, pathname } = new URL(endpoint)
    audited.endpoint_url = origin + pathname
    audited.endpoint_url_sha256 = createHash('sha256').update(endpoint).digest('hex')
  }
  return audited
}
