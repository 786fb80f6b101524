import { LRUCache } from 'lru-cache'
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
import { boundedCache } from '../../../db/support/bounded-cache.ts'
import type { Principal } from '../../../plugins/facts.ts'

export interface PinnedTool {
  readonly resource: McpResource
  readonly tool: McpTool
}

/** A tool as a caller names it, and the resource that it would be of. */
export interface RequestedTool {
  readonly resource: McpResource
  readonly name: string
  /** Undefined if the resource has none of that name, or not any more. */
  readonly tool: McpTool | undefined
}

type LookupResult<Value> = Value | Promise<Value>

export const mapMaybe = <Value, Made>(
  found: LookupResult<Value>,
  make: (value: Value) => LookupResult<Made>,
): LookupResult<Made> => (found instanceof Promise ? found.then(make) : make(found))

/**
 * Looks up resources, tools and bindings for the gate: in the database each time, but for a tool whose
 * resource has the same revision. A resource that is found may be disabled.
 */
export interface McpRegistry {
  readonly resource: (name: string) => LookupResult<McpResource | undefined>
  readonly current: (resource: McpResource) => Promise<McpResource | undefined>
  /** The tool of a name at the aggregate endpoint (docs/protocol.md#mcp-names), if of a resource. */
  readonly exposed: (name: string) => LookupResult<RequestedTool | undefined>
  readonly tool: (resource: McpResource, name: string) => LookupResult<RequestedTool>
  readonly tools: (resource: McpResource) => Promise<readonly McpTool[]>
  /** The URIs that the approved definitions of a resource's tools name as their pages (`ui://`). */
  readonly pages: (resource: McpResource) => Promise<ReadonlySet<string>>
  readonly bound: (principal: Principal) => Promise<readonly McpResource[]>
  readonly binding: (principal: Principal, resource: McpResource) => LookupResult<string | null>
  /** Splits `<resource>.<rest>` into the resource that it names, and the rest. */
  readonly split: (name: string) => LookupResult<{ resource: McpResource; rest: string } | undefined>
}

export function openRegistry(database: Database): McpRegistry {
  const byName = mcpResourceByName(database)
  const toolByName = mcpToolByName(database)
  const onlyTool = onlyMcpTool(database)
  const bindingOf = bindingId(database)
  const kept = new LRUCache<string, { readonly tool: McpTool; readonly revision: number }>({
    max: 5_000,
    maxSize: 32 * 1024 * 1024,
    sizeCalculation: ({ tool }) =>
      1_024 + (tool.definition?.length ?? 0) + (tool.pending_definition?.length ?? 0),
  })

  const pages = boundedCache<ReadonlySet<string>>(500)
  const pagesOf: McpRegistry['pages'] = async ({ resource_id: id, revision }) => {
    const key = `${id} ${revision}`
    const found = pages.get(key) ?? pagesIn(await listMcpTools(database, id))
    pages.set(key, found)
    return found
  }

  const toolOf = (
    { resource_id: id, revision }: McpResource,
    name: string,
  ): LookupResult<McpTool | undefined> => {
    const key = `${id} ${name}`
    const last = kept.get(key)
    if (last?.revision === revision) return last.tool
    return mapMaybe(toolByName(id, name), (tool) => {
      if (tool) kept.set(key, { tool, revision })
      return tool
    })
  }
  const current: McpRegistry['current'] = async (of) => {
    const named = await byName(of.name)
    // Found by its id if it was renamed: rarely, and that is no reason to lose it.
    return named?.resource_id === of.resource_id ? named : findMcpResource(database, of.resource_id)
  }
  const tool: McpRegistry['tool'] = (of, name) =>
    mapMaybe(toolOf(of, name), (named) => ({
      resource: of,
      name,
      tool: named?.state === 'gone' ? undefined : named,
    }))
  // Names that would make this ambiguous were refused when they were registered: the first that fits is the
  // only one.
  const splitFrom = (name: string, from: number): ReturnType<McpRegistry['split']> => {
    const dot = name.indexOf('.', from)
    if (dot <= 0) return undefined
    return mapMaybe(byName(name.slice(0, dot)), (resource) =>
      resource ? { resource, rest: name.slice(dot + 1) } : splitFrom(name, dot + 1),
    )
  }
  const split: McpRegistry['split'] = (name) => splitFrom(name, 0)
  const alone = async (name: string): Promise<RequestedTool | undefined> => {
    const of = await byName(name)
    if (!of) return undefined
    // Also one that is gone: the name must not come to mean another tool because the upstream drops this one.
    if (await toolOf(of, name)) return tool(of, name)
    const only = await onlyTool(of.resource_id)
    return { resource: of, name: only?.name ?? name, tool: only }
  }
  return {
    resource: byName,
    current,
    tool,
    split,
    exposed: (name) =>
      mapMaybe(split(name), (parts) => (parts ? tool(parts.resource, parts.rest) : alone(name))),
    tools: (of) => listMcpTools(database, of.resource_id),
    pages: pagesOf,
    bound: (principal) => boundResources(database, principal.type, principal.id),
    binding: ({ type, id }, of) => bindingOf(type, id, of.resource_id),
  }
}

/** The members of `_meta` by which a tool names its page: MCP Apps, its form before, and that of OpenAI. */
const PAGE = /"(?:resourceUri|ui\/resourceUri|openai\/outputTemplate)":("(?:[^"\\]|\\.)*")/g

/** Finds the pages that approved definitions name, which are JSON text of our own writing. */
function pagesIn(tools: readonly McpTool[]): ReadonlySet<string> {
  const found = new Set<string>()
  for (const { state, definition } of tools) {
    if (state !== 'approved' || !definition || !/resourceUri|outputTemplate/.test(definition)) continue
    for (const [, uri = '""'] of definition.matchAll(PAGE)) found.add(String(JSON.parse(uri)))
  }
  return found
}

/**
 * Tells whether a tool may be listed and called: its definition is the approved one, and a modern upstream's
 * annotations let clients accept it (MCP 2026-07-28, x-mcp-header).
 */
export const isUsable = ({ era }: McpResource, tool: McpTool): tool is PinnedMcpTool =>
  tool.state === 'approved' &&
  tool.definition !== null &&
  !(era === 'modern' && tool.flags.some((flag) => flag.startsWith('header_annotation_invalid')))
