import { capabilityOf, type McpResource } from '../../../db/mcp/resources.ts'
import type { PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { holds } from '../../../plugins/capability.ts'
import type { AccessToken } from '../../../plugins/facts.ts'
import type { Granted } from '../../../plugins/permit.ts'
import { HTTP_GET } from '../gate/target.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { definitionOf } from '../pinning/pinned-definition.ts'
import { edited } from '../protocol/json-text.ts'
import { isUsable, type Registry } from '../state/registry.ts'

interface Asking {
  readonly granted: Granted
  readonly token: AccessToken | null
  readonly pathResource: McpResource | null
}

export interface ListOptions {
  readonly registry: Registry
  /** `enforce_tools_call`. */
  readonly enforced: boolean
  readonly httpGet: boolean
}

const BUILT_IN = JSON.stringify(HTTP_GET_TOOL)

/**
 * Lists the tools that a principal could call now, each as JSON text (spec §2.3): the built-in ones and those
 * of bound resources, as far as it holds the capabilities they demand and their definitions are approved.
 * Answered from the pins: no upstream is asked, so the list holds the approved definitions. At the endpoint
 * of one resource the names are its own.
 */
export async function listTools(
  { granted: { principal }, token, pathResource }: Asking,
  { registry, enforced, httpGet }: ListOptions,
): Promise<readonly string[]> {
  const may = (capability: string): boolean => holds(principal, token, capability)
  if (enforced && !may('mcp.tools.call')) return []
  const resources = pathResource ? [pathResource] : await registry.bound(principal)
  const lists = await Promise.all(
    resources.map(async (resource) => {
      const tools = await registry.tools(resource)
      return tools
        .filter((tool) => isUsable(resource, tool))
        .filter((tool) => may(capabilityOf(resource, tool.name)))
        .map((tool) => listed(resource, tool, pathResource !== null))
    }),
  )
  return [...(httpGet && !pathResource && may(HTTP_GET) ? [BUILT_IN] : []), ...lists.flat()]
}

const listed = ({ name: resource }: McpResource, tool: PinnedMcpTool, scoped: boolean): string =>
  scoped
    ? tool.definition
    : edited(definitionOf(tool).object, { name: JSON.stringify(`${resource}.${tool.name}`) })
