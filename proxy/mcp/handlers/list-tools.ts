import { capabilityOf, type McpResource } from '../../../db/mcp/resources.ts'
import type { PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { holds } from '../../../plugins/capability.ts'
import type { AccessToken } from '../../../plugins/facts.ts'
import type { Granted } from '../../../plugins/permit.ts'
import { turn } from '../../../plugins/turns.ts'
import { HTTP_GET } from '../gate/target.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { definitionOf, type PinnedDefinition } from '../pinning/pinned-definition.ts'
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

/** The tools that take so long are listed at once. ms. */
const SLICE_MS = 3

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
  const list: string[] = httpGet && !pathResource && may(HTTP_GET) ? [BUILT_IN] : []
  let since = performance.now()
  for (const resource of resources) {
    for (const tool of await registry.tools(resource)) {
      if (!isUsable(resource, tool) || !may(capabilityOf(resource, tool.name))) continue
      const text = pathResource ? tool.definition : named(resource, tool)
      list.push(typeof text === 'string' ? text : await text)
      if (performance.now() - since < SLICE_MS) continue
      // There may be thousands.
      await turn()
      since = performance.now()
    }
  }
  return list
}

/** Returns the definition of a tool under its whole name. */
function named({ name: resource }: McpResource, tool: PinnedMcpTool): string | Promise<string> {
  const definition = definitionOf(tool)
  const written = ({ object }: PinnedDefinition): string =>
    edited(object, { name: JSON.stringify(`${resource}.${tool.name}`) })
  return definition instanceof Promise ? definition.then(written) : written(definition)
}
