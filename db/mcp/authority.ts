import type { JsonObject } from '../support/json.ts'
import { portionsOf } from '../support/pages.ts'
import type { McpResourceFields } from './resources.ts'
import type { McpTool } from './tools.ts'

/** The tools that one row names. */
export const MAX_TOOLS_PER_ROW = 64

/** A resource's name and demands. */
type ResourceDemands = Pick<
  McpResourceFields,
  'name' | 'required_capability' | 'tool_capabilities' | 'enabled'
> & {
  readonly resource_id: string
}

/**
 * Says in `detail` a resource's demands from `revision` on (docs/ledger.md#resources): each row that changes
 * it says all of it, so that a later decision can be computed once more from the ledger alone.
 */
export const resourceAuthority = (
  { resource_id, name, required_capability, tool_capabilities, enabled }: ResourceDemands,
  revision: number,
): JsonObject => ({
  resource_id,
  name,
  revision,
  required_capability,
  tool_capabilities,
  enabled,
})

/**
 * Says in `detail` the states that tools come to: `pinned`, each with the digest of its approved definition;
 * `quarantined`, each with that of the definition that waits; `gone`. A state that no tool comes to is left
 * out.
 */
export function toolsDetail(tools: readonly McpTool[]): JsonObject {
  const inState = (asked: McpTool['state']) => tools.filter(({ state }) => state === asked)
  const pinned = inState('approved').map(({ name, digest }) => [name, digest])
  const quarantined = inState('quarantined').map(({ name, pending_digest: digest }) => [name, digest])
  const gone = inState('gone').map(({ name }) => name)
  return {
    ...(pinned.length > 0 && { pinned }),
    ...(quarantined.length > 0 && { quarantined }),
    ...(gone.length > 0 && { gone }),
  }
}

/**
 * Says in `detail`, of one row or several, how a resource and all its tools are (docs/ledger.md#replay). All
 * have the resource's present revision, and add up. `pinned` has the tools too that were approved once and
 * are quarantined or gone now.
 */
export function snapshotOf(
  resource: ResourceDemands & { readonly revision: number },
  tools: readonly McpTool[],
): readonly JsonObject[] {
  const state = resourceAuthority(resource, resource.revision)
  const [first = [], ...rest] = portionsOf(tools, MAX_TOOLS_PER_ROW)
  return [first, ...rest].map((portion) => {
    const pinned = portion.flatMap(({ name, digest }) => (digest === null ? [] : [[name, digest]]))
    return { ...state, ...toolsDetail(portion), ...(pinned.length > 0 && { pinned }) }
  })
}
