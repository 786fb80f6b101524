import { capabilityOf, demandedByTool } from '../../../db/ledger/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { McpTool, PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { holdsDemanded } from '../../../plugins/capability.ts'
import type { AccessToken } from '../../../plugins/facts.ts'
import type { CallPermit } from '../../../plugins/permit.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { HTTP_GET } from '../gate/demand-now.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { type PinnedDefinition, parsePinnedDefinition } from '../pinning/pinned-definition.ts'
import { applyEdits } from '../protocol/json-text.ts'
import { isUsable, type McpRegistry } from '../state/registry.ts'

interface ToolListFacts {
  readonly granted: CallPermit
  readonly token: AccessToken | null
  readonly pathResource: McpResource | null
}

export interface ListOptions {
  readonly registry: McpRegistry
  readonly enforced: boolean
  /** `callable`: tools whose capability is not held are hidden. */
  readonly list: 'bound' | 'callable'
  readonly httpGet: boolean
}

/** The tools that take so long are listed at once. ms. */
const SLICE_MS = 3

const BUILT_IN = JSON.stringify(HTTP_GET_TOOL)

/**
 * Lists the tools of a principal, each as JSON text (spec §2.3), from the pins: no upstream is asked. With
 * `callable` only those whose capability it holds. At the endpoint of one resource the names are its own.
 */
export async function listVisibleTools(
  { granted: { principal }, token, pathResource }: ToolListFacts,
  { registry, enforced, httpGet, list }: ListOptions,
): Promise<readonly string[]> {
  const callable = (capability: string | null): boolean =>
    holdsDemanded(principal, token, demandedByTool(capability, enforced))
  const isListed = (resource: McpResource, tool: McpTool): tool is PinnedMcpTool =>
    isUsable(resource, tool) && (list === 'bound' || callable(capabilityOf(resource, tool.name)))
  const builtIn = list === 'bound' ? holdsDemanded(principal, token, [HTTP_GET]) : callable(HTTP_GET)
  const resources = pathResource ? [pathResource] : await registry.bound(principal)
  const texts: string[] = httpGet && !pathResource && builtIn ? [BUILT_IN] : []
  let since = performance.now()
  for (const resource of resources) {
    for (const tool of await registry.tools(resource)) {
      if (!isListed(resource, tool)) continue
      const text = listedText(resource, tool, pathResource === null)
      texts.push(typeof text === 'string' ? text : await text)
      if (performance.now() - since < SLICE_MS) continue
      // There may be thousands.
      await eventLoopTurn()
      since = performance.now()
    }
  }
  return texts
}

/** Returns the definition of a tool, as JSON of its known members, under its whole name or its own. */
function listedText(
  { name: resource }: McpResource,
  tool: PinnedMcpTool,
  isWholeName: boolean,
): string | Promise<string> {
  const definition = parsePinnedDefinition(tool)
  const written = ({ object, listed }: PinnedDefinition): string =>
    isWholeName ? applyEdits(object, { name: JSON.stringify(`${resource}.${tool.name}`) }) : listed
  return definition instanceof Promise ? definition.then(written) : written(definition)
}
