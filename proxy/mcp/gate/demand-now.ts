import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Demand, Principal } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { capabilityOf, type PinnedTool, type Registry } from '../state/registry.ts'

/** What a call that was granted reaches. */
export interface Reached {
  readonly resource: McpResource
  /** The pinned tool, where it is one. */
  readonly found: PinnedTool | null
  /** What it demanded then. */
  readonly demand: Demand
}

/**
 * What the same call would demand now: for a stream that is open and for a question that waits, both of which may outlast
 * what an operator has granted (SECURITY M-06). Refuses with `mcp_not_bound` where the principal is not bound to the
 * resource any more, or the resource was disabled or deleted. Does NOT check that the principal holds it.
 */
export async function demandNow(
  registry: Pick<Registry, 'current' | 'isBound'>,
  principal: Principal,
  { resource, found, demand }: Reached,
): Promise<Demand> {
  const current = await registry.current(resource)
  if (!current || !(await registry.isBound(principal, current))) throw new Refusal('mcp_not_bound')
  return found ? { ...demand, capability: capabilityOf(current, found.tool.name) } : demand
}
