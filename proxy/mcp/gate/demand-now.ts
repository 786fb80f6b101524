import { capabilityOf, demandedByTool } from '../../../db/audit/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Demand, Principal } from '../../../plugins/facts.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { PinnedTool, Registry } from '../state/registry.ts'

/** A granted call, by the resource that it reaches. */
export interface ReachingCall {
  readonly resource: McpResource
  /** The pinned tool, where it is one. */
  readonly pinned: PinnedTool | null
  /** The demand of the call when it was granted. */
  readonly demand: Demand
}

interface DemandSources {
  readonly registry: Pick<Registry, 'current' | 'binding'>
  /** `enforce_tools_call`. */
  readonly enforced: boolean
}

/** The same call now. */
interface CallNow {
  /** As it is now, enabled or not. */
  readonly resource: McpResource
  /** The id of the principal's binding to it, or null. */
  readonly binding: string | null
  readonly demand: Demand
  /** True where the resource is enabled and the principal is bound to it. */
  readonly stands: boolean
}

/** Looks at a call as it would be now. Null where the resource was deleted. */
export async function callNow(
  { registry, enforced }: DemandSources,
  principal: Principal,
  { resource: before, pinned, demand }: ReachingCall,
): Promise<CallNow | null> {
  const resource = await registry.current(before)
  if (!resource) return null
  const binding = await registry.binding(principal, resource)
  const demanded = pinned
    ? demandedByTool(capabilityOf(resource, pinned.tool.name), enforced)
    : demand.demanded
  return { resource, binding, demand: { ...demand, demanded }, stands: resource.enabled && binding !== null }
}

/**
 * States the demand of the same call now: for a stream that is open, which may outlast an operator's grant
 * (docs/threats.md#m-06). Refuses with `mcp_not_bound` where the principal is not bound to the resource any more,
 * or the resource was disabled or deleted. Does NOT check that the principal holds it.
 */
export async function demandNow(
  sources: DemandSources,
  principal: Principal,
  call: ReachingCall,
): Promise<Demand> {
  const now = await callNow(sources, principal, call)
  if (!now?.stands) throw new Refusal('mcp_not_bound')
  return now.demand
}
