import { capabilityOf } from '../../../db/ledger/authority/rule.ts'
import type { McpResourceFields } from '../../../db/mcp/resources.ts'

type ResourceRequirements = Pick<McpResourceFields, 'required_capability' | 'tool_capabilities'>

/**
 * True if a change of an MCP resource lets somebody call a tool by a set that did not open it before: a tool,
 * named or not, demanded a capability, and demands none or another one now. To demand one for the first time,
 * and to enable or disable, lowers nothing. Does NOT ask whether anybody is bound, or holds the other one.
 */
export function reducesRequirements(before: ResourceRequirements, after: ResourceRequirements): boolean {
  const named = new Set([...Object.keys(before.tool_capabilities), ...Object.keys(after.tool_capabilities)])
  const ofOthers = [before.required_capability, after.required_capability] as const
  const pairs = [...named].map((tool) => [capabilityOf(before, tool), capabilityOf(after, tool)] as const)
  return [ofOthers, ...pairs].some(([was, is]) => was !== null && was !== is)
}
