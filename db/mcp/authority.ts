import { statedRule } from '../ledger/approvals/approval-rule.ts'
import { proofMembers } from '../ledger/authority/rule.ts'
import type { JsonObject } from '../support/json.ts'
import { portionsOf } from '../support/pages.ts'
import { type McpResourceFields, NO_APPROVALS } from './resources.ts'
import type { McpTool } from './tools.ts'

export const MAX_TOOLS_PER_ROW = 64

type ResourceDemands = Pick<
  McpResourceFields,
  | 'name'
  | 'required_capability'
  | 'tool_capabilities'
  | 'enabled'
  | 'min_proof'
  | 'tool_min_proof'
  | keyof typeof NO_APPROVALS
> & {
  readonly resource_id: string
}

/**
 * Says a resource's demands from `revision` on (docs/ledger.md#resources): each row of a change says all, so
 * that decisions can be computed again.
 */
export const resourceAuthority = (
  { resource_id, name, required_capability, tool_capabilities, enabled, ...rule }: ResourceDemands,
  revision: number,
): JsonObject => ({
  resource_id,
  name,
  revision,
  required_capability,
  tool_capabilities,
  enabled,
  ...statedRule(rule),
  ...(rule.approval_ttl_s !== NO_APPROVALS.approval_ttl_s && { approval_ttl_s: rule.approval_ttl_s }),
  ...(rule.approval_wait_s !== NO_APPROVALS.approval_wait_s && { approval_wait_s: rule.approval_wait_s }),
  ...proofMembers(rule),
})

/**
 * Says the new states of tools: `pinned` with approved digests; `quarantined` with waiting ones; `gone`. A
 * state that no tool comes to is left out.
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
 * Says all of a resource and its tools, in one row or several that add up (docs/ledger.md#replay), of its
 * present revision. `pinned` also has tools approved once and quarantined or gone now.
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
