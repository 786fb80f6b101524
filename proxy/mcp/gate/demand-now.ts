import { capabilityOf, type McpResource } from '../../../db/mcp/resources.ts'
import type { Demand, Principal } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { PinnedTool, Registry } from '../state/registry.ts'

/** The resource that a granted call reaches. */
export interface Reached {
  readonly resource: McpResource
  /** The pinned tool, where it is one. */
  readonly pinned: PinnedTool | null
  /** The demand of the call when it was granted. */
  readonly demand: Demand
}

/**
 * States the demand of the same call now: for a stream that is open and for a server request that waits, both
 * of which may outlast an operator's grant (docs/threats.md#m-06). Refuses with `mcp_not_bound` where the
 * principal is not bound to the resource any more, or the resource was disabled or deleted; gives it as it is
 * now. Does NOT check that the principal holds it.
 */
export async function demandNow(
  registry: Pick<Registry, 'current' | 'isBound'>,
  principal: Principal,
  { resource, pinned, demand }: Reached,
): Promise<{ readonly demand: Demand; readonly resource: McpResource }> {
  const current = await registry.current(resource)
  if (!current || !(await registry.isBound(principal, current))) throw new Refusal('mcp_not_bound')
  const now = pinned ? { ...demand, capability: capabilityOf(current, pinned.tool.name) } : demand
  return { demand: now, resource: current }
}
