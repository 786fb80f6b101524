import { capabilityOf } from '../../../db/ledger/authority/rule.ts'
import type { McpResourceFields } from '../../../db/mcp/resources.ts'

type ResourceRequirements = Pick<McpResourceFields, 'required_capability' | 'tool_capabilities'>

/**
 * True if a set that did not open a tool before opens it now: the tool demanded a capability, and demands
 * none or another one. A first demand, enabling and disabling lower nothing. Does NOT ask if anybody is
 * bound.
 */
export function reducesRequirements(before: ResourceRequirements, after: ResourceRequirements): boolean {
  const named = new Set([...Object.keys(before.tool_capabilities), ...Object.keys(after.tool_capabilities)])
  const ofOthers = [before.required_capability, after.required_capability] as const
  const pairs = [...named].map((tool) => [capabilityOf(before, tool), capabilityOf(after, tool)] as const)
  return [ofOthers, ...pairs].some(([was, is]) => was !== null && was !== is)
}
