/**
 * The rule that decides a call, question by question (docs/ledger.md#rule): the gate asks it about the
 * database of now, `sallyport verify --authority` about the rows. Plain values in, plain values out; every
 * instant is ms since the epoch. Does NOT look at things that no row holds: whether a proof's signature, a
 * token or a body is good.
 */

import type { ApprovalRule, ApproverKind } from '../approvals/approval-rule.ts'

/** A thumbprint, and the end of the time that it is honoured: RFC 3339; null for the current one. */
export type HonouredThumbprint = readonly [thumbprint: string, until: string | null]

/** The `egress_dpop_mode` (spec §5.2): a DPoP proof is ignored, verified when present, or demanded. */
export type DpopMode = 'off' | 'optional' | 'required'

export const ANY_CALL_CAPABILITY = 'mcp.tools.call'

/** The one built-in tool. Its name is the capability that it demands. */
export const BUILT_IN_TOOL = 'http.get'

/**
 * The reasons of refusals that follow from authority alone: the gate stores their rows only while it stands,
 * and a verifier computes them once more. A row about a principal that was deactivated, or lost its
 * certificate, while its call was judged names the revision that it came with, so it is none of these.
 */
export const RULE_REFUSAL_REASONS: ReadonlySet<string> = new Set([
  'proof_required',
  'mcp_tool_unknown',
  'mcp_not_bound',
  'capability_missing',
  'mcp_tool_quarantined',
  'stopped',
  'approval_required',
  'proof_too_weak',
])

const PROMPTS = ['mcp.prompts.get']
const RESOURCES = ['mcp.resources.read']

/** The capabilities that an action demands, for those actions that alone decide it. */
export const CAPABILITIES_BY_ACTION: ReadonlyMap<string, readonly string[]> = new Map([
  ['egress_llm_chat', ['llm.chat']],
  ['mcp_tools_list', ['mcp.tools.list']],
  ['mcp_prompts_list', PROMPTS],
  ['mcp_prompts_get', PROMPTS],
  ['mcp_resources_list', RESOURCES],
  ['mcp_resources_templates_list', RESOURCES],
  ['mcp_resources_read', RESOURCES],
  ['mcp_resources_subscribe', RESOURCES],
  ['mcp_resources_unsubscribe', RESOURCES],
])

/** The proofs of a caller, the weakest first: a token alone, a token bound to a key, a certificate. */
const PROOFS = ['none', 'key', 'certificate'] as const

/** The least proof that is demanded of a caller. */
export type MinProof = (typeof PROOFS)[number]

/** The proof of a call without a certificate: a token bound to the client's key, or a token alone. */
export type CallGrade = Exclude<MinProof, 'certificate'>

export const isMinProof = (value: unknown): value is MinProof => PROOFS.some((one) => one === value)

/** True if a caller of this grade shows at least the proof that is demanded. A certificate always suffices. */
export const isProofEnough = (shown: MinProof, demanded: MinProof): boolean =>
  PROOFS.indexOf(shown) >= PROOFS.indexOf(demanded)

/** The least proof that an MCP resource demands, as its operator set it. */
export interface ProofDemands {
  readonly min_proof: MinProof
  /** Keyed by tool name: instead of `min_proof`. */
  readonly tool_min_proof: Readonly<Record<string, MinProof>>
}

/** The least proof that a call of a resource demands. `tool`: null if it calls none. */
export const minProofOf = (
  { tool_min_proof: own, min_proof: all }: ProofDemands,
  tool: string | null,
): MinProof => (tool !== null && Object.hasOwn(own, tool) ? own[tool] : undefined) ?? all

/** The same as rows have it: only what is not the default. */
export const proofMembers = ({ min_proof, tool_min_proof }: ProofDemands): Partial<ProofDemands> => ({
  ...(min_proof !== 'certificate' && { min_proof }),
  ...(Object.keys(tool_min_proof).length > 0 && { tool_min_proof }),
})

/** An MCP resource's demands on those who call its tools, as its operator set them. */
export interface ToolDemands {
  /** For every tool not in `tool_capabilities`; null: only the binding. */
  readonly required_capability: string | null
  /** Keyed by tool name. */
  readonly tool_capabilities: Readonly<Record<string, string>>
}

/** The capability that calling a tool of a resource demands: its own, else the resource's; null: none. */
export const capabilityOf = (
  { tool_capabilities: own, required_capability: all }: ToolDemands,
  tool: string,
): string | null =>
  // Own members only: a tool may be called `constructor`.
  (Object.hasOwn(own, tool) ? own[tool] : undefined) ?? all

/** Returns the approver of a call of a tool: by its own rule, else the resource's; null: nobody. */
export function approverOf(
  { approval, tool_approvals: own }: ApprovalRule,
  tool: string,
): ApproverKind | null {
  // Own members only: a tool may be called `constructor`.
  const ofTool = Object.hasOwn(own, tool) ? own[tool] : undefined
  return ofTool === undefined ? approval : ofTool
}

/** The capability, and with `enforce_tools_call` the method's own after it, once (spec §2.3). */
export function demandedByTool(capability: string | null, enforced: boolean): readonly string[] {
  const own = capability === null ? [] : [capability]
  return enforced && capability !== ANY_CALL_CAPABILITY ? [...own, ANY_CALL_CAPABILITY] : own
}

export const demandedOfTool = (
  tool: string,
  required_capability: string | null,
  tool_capabilities: Readonly<Record<string, string>>,
  enforced: boolean,
): readonly string[] =>
  demandedByTool(capabilityOf({ required_capability, tool_capabilities }, tool), enforced)

export const demandedOfBuiltIn = (enforced: boolean): readonly string[] =>
  demandedByTool(BUILT_IN_TOOL, enforced)

/**
 * The first demanded capability that is not both held and within the token's scope (null: all). If nothing is
 * demanded, something must still be held within it: an empty set opens nothing, and `mcp.tools.call` is
 * named.
 */
export function missingCapability(
  demanded: readonly string[],
  held: readonly string[],
  scope: readonly string[] | null,
): string | null {
  if (demanded.length === 0)
    return held.some((one) => scope?.includes(one) ?? true) ? null : ANY_CALL_CAPABILITY
  for (const one of demanded) if (!held.includes(one) || scope?.includes(one) === false) return one
  return null
}

/** Returns whether something that ends at `until` still stands. */
export const isInForce = (until: string | null, at: number): boolean =>
  until === null || at < Date.parse(until)

/** Returns the thumbprints that are honoured at this instant. */
export const thumbprintsAt = (pinned: readonly HonouredThumbprint[], at: number): readonly string[] =>
  pinned.flatMap(([thumbprint, until]) => (isInForce(until, at) ? [thumbprint] : []))

/**
 * A pinned certificate in its time, or for a SPIFFE principal any unpinned one of its id. Does NOT ask if it
 * chains to the bundle.
 */
export function certificateHolds(
  thumbprint: string,
  pinned: readonly HonouredThumbprint[],
  bySpiffeId: boolean,
  at: number,
): boolean {
  const found = pinned.filter(([known]) => known === thumbprint)
  return found.length === 0 ? bySpiffeId : found.some(([, until]) => isInForce(until, at))
}

/**
 * The reason why a proof does not suffice, or null. `jkt`: of the key whose proof held; null: none.
 * `registered`: the keys honoured now. `tokenBound`: an access token is bound to `jkt`.
 */
export function proofFault(
  mode: DpopMode,
  noDowngrade: boolean,
  jkt: string | null,
  registered: readonly string[],
  tokenBound: boolean,
): 'proof_required' | 'proof_invalid' | null {
  if (mode === 'off') return null
  const bound = noDowngrade && registered.length > 0
  if (jkt === null) return mode === 'required' || bound || tokenBound ? 'proof_required' : null
  if (tokenBound && !bound) return null
  if (registered.length === 0) return mode === 'required' ? 'proof_required' : null
  return registered.includes(jkt) ? null : 'proof_invalid'
}
