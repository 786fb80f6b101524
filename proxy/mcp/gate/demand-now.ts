import {
  type CallGrade,
  capabilityOf,
  demandedByTool,
  isProofEnough,
  type MinProof,
  minProofOf,
} from '../../../db/ledger/authority/rule.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { CapabilityDemand, Principal } from '../../../plugins/facts.ts'
import { proofTooWeak } from '../../../plugins/people/bearer.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import type { RemoteServerRequest } from '../state/far-requests.ts'
import type { McpRegistry, PinnedTool } from '../state/registry.ts'
import type { ServerRequest } from '../state/server-requests.ts'

export const HTTP_GET = String(HTTP_GET_TOOL.name)

export interface ResourceCall {
  readonly resource: McpResource
  readonly pinned: PinnedTool | null
  readonly demand: CapabilityDemand
}

interface DemandDependencies {
  readonly registry: Pick<McpRegistry, 'current' | 'binding'>
  /** `enforce_tools_call`. */
  readonly enforced: boolean
  /** The grade of a call without a certificate. */
  readonly grade?: CallGrade | undefined
}

interface CurrentCall {
  readonly resource: McpResource
  /** The id of the principal's binding to it, or null. */
  readonly binding: string | null
  readonly demand: CapabilityDemand
  /** True if the resource is enabled and the principal is bound to it. */
  readonly stands: boolean
}

/** Looks at a call as it would be now. Null if the resource was deleted. */
export async function resolveCurrentCall(
  { registry, enforced }: DemandDependencies,
  principal: Principal,
  { resource: before, pinned, demand }: ResourceCall,
): Promise<CurrentCall | null> {
  const resource = await registry.current(before)
  if (!resource) return null
  const binding = await registry.binding(principal, resource)
  const demanded = pinned
    ? demandedByTool(capabilityOf(resource, pinned.tool.name), enforced)
    : demand.demanded
  return { resource, binding, demand: { ...demand, demanded }, stands: resource.enabled && binding !== null }
}

/**
 * States the demand of the same call now: a stream may outlast a grant (docs/threats.md#m-06). Refuses with
 * `mcp_not_bound` if the binding is gone, or the resource disabled or deleted; with `proof_too_weak` if it
 * takes no such grade any more. Does NOT check that the principal holds it.
 */
export async function currentDemand(
  sources: DemandDependencies,
  principal: Principal,
  call: ResourceCall,
): Promise<CapabilityDemand> {
  const now = await resolveCurrentCall(sources, principal, call)
  if (!now?.stands) throw new Refusal('mcp_not_bound')
  const { grade } = sources
  const least = grade && minProofOf(now.resource, call.pinned?.tool.name ?? null)
  if (grade && least && !isProofEnough(grade, least)) throw proofTooWeak(least)
  return now.demand
}

export type McpTarget =
  | { readonly kind: 'list_tools' }
  | { readonly kind: 'aggregate'; readonly member: string }
  | { readonly kind: 'built_in' }
  | { readonly kind: 'tool'; readonly pinned: PinnedTool }
  /** `name`: the upstream's own, if the caller's is another one. */
  | { readonly kind: 'relay'; readonly resource: McpResource; readonly name: string | null }
  | Readonly<{
      kind: 'answer'
      request: ServerRequest | RemoteServerRequest
      id: string
      resource: McpResource
    }>

export interface McpRules {
  /** True: the built-in tool exists. */
  readonly httpGet: boolean
  /** `enforce_tools_call`: every call of a tool also demands `mcp.tools.call` (spec §2.3). */
  readonly enforced: boolean
}

export interface McpRuleOptions {
  readonly http_get: { readonly enabled: boolean }
  readonly enforce_tools_call: boolean
}

export const readMcpRules = ({ http_get, enforce_tools_call }: McpRuleOptions): McpRules => ({
  httpGet: http_get.enabled,
  enforced: enforce_tools_call,
})

/** The least proof that a target takes; null: it reaches nothing by itself, and lists leave out what is too much. */
function leastProof(target: McpTarget): MinProof | null {
  if (target.kind === 'list_tools' || target.kind === 'aggregate') return null
  if (target.kind === 'built_in') return 'certificate'
  if (target.kind === 'tool') return minProofOf(target.pinned.resource, target.pinned.tool.name)
  const tool = target.kind === 'answer' ? (target.request.pinned?.tool.name ?? null) : null
  return minProofOf(target.resource, tool)
}

/** The refusal of a call whose grade is less than its target takes; null: it suffices. */
export function refusalOfGrade(target: McpTarget, grade: CallGrade): Refusal | null {
  const least = leastProof(target)
  if (least === null || isProofEnough(grade, least)) return null
  return proofTooWeak(least)
}

/**
 * States a target's present demand. Refuses with `mcp_tool_unknown` or `mcp_not_bound`; with `proof_too_weak`
 * if the caller has shown no certificate, and a resource takes no such grade any more.
 */
export async function currentTargetDemand(
  target: McpTarget,
  demand: CapabilityDemand,
  principal: Principal,
  { registry, httpGet, enforced, grade }: McpRules & Pick<DemandDependencies, 'registry' | 'grade'>,
): Promise<CapabilityDemand> {
  if (target.kind === 'built_in' && !httpGet) throw new Refusal('mcp_tool_unknown')
  if (target.kind === 'built_in') return { ...demand, demanded: demandedByTool(HTTP_GET, enforced) }
  const reached = reachedBy(target, demand)
  return reached ? currentDemand({ registry, enforced, grade }, principal, reached) : demand
}

function reachedBy(target: McpTarget, demand: CapabilityDemand): ResourceCall | null {
  if (target.kind === 'tool') return { resource: target.pinned.resource, pinned: target.pinned, demand }
  if (target.kind === 'relay') return { resource: target.resource, pinned: null, demand }
  return target.kind === 'answer' ? target.request : null
}
