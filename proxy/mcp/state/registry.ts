import type { Database } from '../../../db/database.ts'
import { bindingId, boundResources } from '../../../db/mcp/bindings.ts'
import { findMcpResource, type McpResource, mcpResourceByName } from '../../../db/mcp/resources.ts'
import {
  listMcpTools,
  type McpTool,
  mcpToolByName,
  onlyMcpTool,
  type PinnedMcpTool,
} from '../../../db/mcp/tools.ts'
import type { Principal } from '../../../plugins/facts.ts'

/** A pinned tool and the resource it belongs to. */
export interface PinnedTool {
  readonly resource: McpResource
  readonly tool: McpTool
}

/** A tool as a caller names it, and the resource that it would be of. */
export interface SoughtTool {
  readonly resource: McpResource
  readonly name: string
  /** Undefined where the resource has none of that name, or not any more. */
  readonly tool: McpTool | undefined
}

/**
 * Looks up resources, tools and bindings for the gate: in the database, each time, so that a change holds at
 * once. A resource that is found may be disabled.
 */
export interface Registry {
  readonly resource: (name: string) => Promise<McpResource | undefined>
  /** A resource that was found before, as it is now; undefined where it was deleted since. */
  readonly current: (resource: McpResource) => Promise<McpResource | undefined>
  /**
   * The tool of a name at the aggregate endpoint: `<resource>.<tool>`, or `<resource>` alone
   * (docs/protocol.md#mcp-names). Undefined where the name is of no resource.
   */
  readonly exposed: (name: string) => Promise<SoughtTool | undefined>
  readonly tool: (resource: McpResource, name: string) => Promise<SoughtTool>
  readonly tools: (resource: McpResource) => Promise<readonly McpTool[]>
  /** The enabled resources that a principal is bound to. */
  readonly bound: (principal: Principal) => Promise<readonly McpResource[]>
  /** The id of the binding of a principal to a resource, or null. */
  readonly binding: (principal: Principal, resource: McpResource) => Promise<string | null>
  /** Splits `<resource>.<rest>` into the resource that it names, and the rest. */
  readonly split: (name: string) => Promise<{ resource: McpResource; rest: string } | undefined>
}

export function openRegistry(database: Database): Registry {
  const byName = mcpResourceByName(database)
  const toolByName = mcpToolByName(database)
  const onlyTool = onlyMcpTool(database)
  const bindingOf = bindingId(database)

  const resource: Registry['resource'] = async (name) => byName(name)
  const current: Registry['current'] = async (of) => {
    const named = await byName(of.name)
    // By its id where it was renamed: rarely, and that is no reason to lose it.
    return named?.resource_id === of.resource_id ? named : findMcpResource(database, of.resource_id)
  }
  const tool: Registry['tool'] = async (of, name) => {
    const named = await toolByName(of.resource_id, name)
    return { resource: of, name, tool: named?.state === 'gone' ? undefined : named }
  }
  const split: Registry['split'] = async (name) => {
    // Names that would make this ambiguous were refused when they were registered: the first that fits is the
    // only one.
    for (let dot = name.indexOf('.'); dot > 0; dot = name.indexOf('.', dot + 1)) {
      const named = await resource(name.slice(0, dot))
      if (named) return { resource: named, rest: name.slice(dot + 1) }
    }
    return undefined
  }
  const alone = async (name: string): Promise<SoughtTool | undefined> => {
    const of = await resource(name)
    if (!of) return undefined
    // Also one that is gone: the name must not come to mean another tool because the upstream drops this one.
    if (await toolByName(of.resource_id, name)) return tool(of, name)
    const only = await onlyTool(of.resource_id)
    return { resource: of, name: only?.name ?? name, tool: only }
  }
  return {
    resource,
    current,
    tool,
    split,
    exposed: async (name) => {
      const parts = await split(name)
      return parts ? tool(parts.resource, parts.rest) : alone(name)
    },
    tools: (of) => listMcpTools(database, of.resource_id),
    bound: (principal) => boundResources(database, principal.type, principal.id),
    binding: async ({ type, id }, of) => bindingOf(type, id, of.resource_id),
  }
}

/**
 * Tells whether a tool may be listed and called as it stands: its definition is the approved one, and a
 * modern upstream has not annotated it so that a client must not accept it (MCP 2026-07-28, x-mcp-header).
 */
export const isUsable = ({ era }: McpResource, tool: McpTool): tool is PinnedMcpTool =>
  tool.state === 'approved' &&
  tool.definition !== null &&
  !(era === 'modern' && tool.flags.some((flag) => flag.startsWith('header_annotation_invalid')))
