import { createHash } from 'node:crypto'
import type { Json, JsonObject } from '../../db/json.ts'
import type { McpResource, McpResourceFields } from '../../db/mcp-resources.ts'
import type { McpTool } from '../../db/mcp-tools.ts'
import { capabilityOf } from '../mcp/registry.ts'
import { toolChanges } from '../mcp/tool-changes.ts'

/** A resource with its tools as operators see it (WIRE.md §2). The revision is the ETag, not a field. */
export const shownMcpResource = (
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
  tools: tools.map((tool) => shownTool(resource, tool)),
})

/** A tool that was never approved has neither a digest nor an instant at which it was pinned. */
function shownTool(resource: McpResource, tool: McpTool): Record<string, unknown> {
  const { name, state, digest, pending_digest, flags, pinned_at, changed_at } = tool
  const approved = digest !== ''
  return {
    name,
    exposed_as: `${resource.name}.${name}`,
    required_capability: capabilityOf(resource, name),
    state,
    digest: approved ? digest : null,
    pending_digest,
    flags,
    pinned_at: approved ? pinned_at : null,
    changed_at,
    ...(state === 'quarantined' && { changes: changesOf(tool) }),
  }
}

function changesOf({ definition: pinned, pending_definition: pending }: McpTool): readonly string[] {
  if (pinned === '' || pending === null) return ['new tool']
  return toolChanges(definitionOf(pinned), definitionOf(pending))
}

// Proven by the reader of tools: what is not an object was never stored.
const definitionOf = (text: string): Readonly<Record<string, unknown>> =>
  JSON.parse(text) as Readonly<Record<string, unknown>>

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
