import {
  type ApprovalReplay,
  type ApproverKind,
  NO_TOOL_APPROVALS,
  type ReplayedApproval,
} from '../approvals/approval-rule.ts'
import { NotRecomputable, type RecordedDecision, type ReplayedCall, RowContradiction } from './decision.ts'
import type { ReplayedResource } from './replay.ts'
import { approverOf, BUILT_IN_TOOL, isProofEnough, type MinProof, minProofOf } from './rule.ts'
import type { ResourceState } from './states.ts'

/** The doors of one resource. There the binding is asked before anything is said of its tools. */
const DOOR_OF_RESOURCE = /^\/v1\/(?:mcp\/[^/]+|[^/]+\/mcp)$/

export const isAtDoor = ({ path }: RecordedDecision): boolean => DOOR_OF_RESOURCE.test(path)

const LISTS = /^mcp_(?:tools|prompts|resources|resources_templates)_list$/

/** Calls that need not name a resource: lists of all of them, and the built-in tool. */
const reachesNone = ({ row }: RecordedDecision): boolean =>
  LISTS.test(row.action) || (row.action === 'mcp_tools_call' && row.tool === BUILT_IN_TOOL)

export function refusalOfResource(call: ReplayedCall): string | null {
  const { decision } = call
  const { row } = decision
  if (!row.action.startsWith('mcp_')) return null
  const found = resourceOf(call)
  if (!found) return refusalOfNone(decision)
  const [known, state] = found
  // The answer to a call too: else it could name the tool of any other resource.
  const tool = namesTool(decision) ? upstreamToolName(row.tool, state) : null
  const unknown = isUnknown(decision, tool, known) ? 'mcp_tool_unknown' : null
  // There the resource itself is not bound.
  if (isAtDoor(decision) || row.action === 'mcp_response')
    return refusalOfBinding(call) ?? (state.enabled ? unknown : 'mcp_not_bound')
  return (state.enabled ? unknown : 'mcp_tool_unknown') ?? refusalOfBinding(call)
}

function refusalOfNone(decision: RecordedDecision): null {
  if (decision.reason === 'mcp_not_bound' || decision.reason === 'mcp_tool_unknown')
    throw new NotRecomputable('no resource is named, for there was none')
  if (decision.allowed && !reachesNone(decision))
    throw new RowContradiction('does not name the resource that it reached')
  return null
}

function refusalOfBinding({ decision, authority, bindings }: ReplayedCall): string | null {
  const { binding: named, resource } = authority
  const id = resource?.id
  if (named !== null && bindings.get(named) === id) return null
  const other = [...bindings].find(([, to]) => to === id)
  if (!other) return 'mcp_not_bound'
  if (named === null && !decision.allowed) return null
  throw new RowContradiction(`names the binding ${named ?? 'none'}, but it is ${other[0]}`)
}

export function resourceOf({
  authority,
  replay,
}: ReplayedCall): readonly [ReplayedResource, ResourceState] | null {
  if (!authority.resource) return null
  const { id, revision } = authority.resource
  const known = replay.resources.get(id)
  const last = known?.states.at(-1)
  if (!known || !last) throw new RowContradiction(`names the resource ${id}, which no row made`)
  if (last.revision === revision) return [known, last]
  throw new RowContradiction(
    `rests on revision ${revision} of ${id}, but the last one before it is ${last.revision}`,
  )
}

const namesTool = ({ row }: RecordedDecision): boolean =>
  row.action === 'mcp_tools_call' || (row.action === 'mcp_response' && row.tool !== null)

function isUnknown({ row }: RecordedDecision, tool: string | null, { tools }: ReplayedResource): boolean {
  const listed = tools.get(tool ?? '')
  return row.action === 'mcp_tools_call' && (!listed || listed.state === 'gone')
}

export function upstreamToolName(tool: string | null, { name }: ResourceState): string {
  if (tool?.startsWith(`${name}.`)) return tool.slice(name.length + 1)
  throw new RowContradiction(`is about ${tool ?? 'no tool'}, which is none of ${name}`)
}

/** Asks question 6 of a call without a certificate: it shows the least proof that its target takes. */
export function refusalOfWeakProof(call: ReplayedCall): string | null {
  const { bound } = call.authority
  if (bound === null) return null
  const demanded = demandedProof(call)
  return demanded === null || isProofEnough(bound, demanded) ? null : 'proof_too_weak'
}

/** Null: it reaches nothing by itself, and what it lists is left out piece by piece. */
function demandedProof(call: ReplayedCall): MinProof | null {
  const { decision, configuration } = call
  const { row } = decision
  if (row.action === 'egress_llm_chat') return configuration.llmProof ?? 'certificate'
  if (row.action === 'mcp_tools_list') return null
  const [, state] = resourceOf(call) ?? []
  if (!state) return row.action === 'mcp_tools_call' && row.tool === BUILT_IN_TOOL ? 'certificate' : null
  const { minProof: min_proof, toolMinProof: tool_min_proof } = state
  return minProofOf(
    { min_proof, tool_min_proof },
    namesTool(decision) ? upstreamToolName(row.tool, state) : null,
  )
}

export function refusalOfTool(call: ReplayedCall): string | null {
  const { decision, authority } = call
  const { row, reason } = decision
  const found = row.action === 'mcp_tools_call' ? resourceOf(call) : null
  if (!found) return null
  const [{ tools }, state] = found
  const tool = tools.get(upstreamToolName(row.tool, state))
  if (tool?.state !== 'approved') return 'mcp_tool_quarantined'
  if (reason === 'mcp_tool_quarantined')
    throw new NotRecomputable('approved tools that are annotated so that no client may accept them')
  if (!decision.allowed || authority.pin === tool.digest) return null
  throw new RowContradiction(
    `was judged against ${authority.pin ?? 'no definition'}, but ${tool.digest} is approved`,
  )
}

/** Returns who must approve the call of a tool, by the rule of its resource; null: nobody. */
export function approverOfCall(call: ReplayedCall): ApproverKind | null {
  const { row } = call.decision
  const found = row.action === 'mcp_tools_call' ? resourceOf(call) : null
  if (!found) return null
  const [, state] = found
  const { approval = null, toolApprovals: own = NO_TOOL_APPROVALS } = state
  return approverOf({ approval, tool_approvals: own }, upstreamToolName(row.tool, state))
}

/** The last question of the rule (docs/ledger.md#rule, 9). */
export function refusalOfMissingApproval(call: ReplayedCall, approvals: ApprovalReplay): string | null {
  const { decision, authority } = call
  const { approval: named } = authority
  const by = approverOfCall(call)
  if (by === null) {
    if (named !== null) throw new RowContradiction('names an approval that it does not need')
    return null
  }
  if (named === null) return 'approval_required'
  if (!decision.allowed) throw new RowContradiction('was refused, and names an approval')
  const known = approvals.find(named.id)
  const isOwn = known?.approver === 'person'
  const problem =
    isOwn && (by !== 'person' || decision.row.principal_type !== 'user')
      ? `names the approval ${named.id} of its own person, and an operator must approve it`
      : approvalFault(call, known, named)
  if (problem !== null) throw new RowContradiction(problem)
  return null
}

function approvalFault(
  { decision: { row }, authority }: ReplayedCall,
  known: ReplayedApproval | undefined,
  { id, digest, continued }: NonNullable<ReplayedCall['authority']['approval']>,
): string | null {
  if (!known) return `names the approval ${id}, which no row asked for`
  const isSame =
    known.subject === row.principal_id &&
    known.resource === authority.resource?.id &&
    known.revision === authority.resource.revision &&
    known.tool === row.tool &&
    known.pin === authority.pin &&
    known.call_digest === digest
  if (!isSame) return `names the approval ${id}, which is of another call`
  if (known.status === 'open') return `names the approval ${id}, which nobody had given`
  if (row.recorded_at >= known.expires_at) return `names the approval ${id}, whose time was over`
  if (continued) return known.status === 'used' ? null : `goes on with the approval ${id}, which was not used`
  return known.status === 'used' ? `names the approval ${id}, which was used before` : null
}
