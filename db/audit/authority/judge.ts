import type { Authority, Decision } from './decision.ts'
import type { KnownResource, Replay } from './replay.ts'
import {
  BUILT_IN_TOOL,
  certificateHolds,
  DEMANDED_BY_ACTION,
  demandedOfBuiltIn,
  demandedOfTool,
  missingOf,
  proofFault,
  thumbprintsAt,
} from './rule.ts'
import type { ConfigurationState, PrincipalState, ResourceState } from './states.ts'

/** What recomputing a decision came to: null where it agrees. */
export type Judgement = { readonly problem: string } | { readonly notRecomputable: string } | null

/** Refusals that follow from authority alone. Those rows are stored only while it stands. */
const OF_AUTHORITY: ReadonlySet<string> = new Set([
  'principal_deactivated',
  'certificate_not_pinned',
  'proof_required',
  'mcp_tool_unknown',
  'mcp_not_bound',
  'capability_missing',
  'mcp_tool_quarantined',
])

/** The doors of one resource. There the binding is asked before anything is said of its tools. */
const DOOR_OF_RESOURCE = /^\/v1\/(?:mcp\/[^/]+|[^/]+\/mcp)$/

const NOT_IN_A_ROW = 'refused for what no row holds'

/** Thrown where a row contradicts the rows before it, or leaves out what it must name. */
class Contradiction extends Error {}
/** Thrown where the rows do not say enough. */
class NotRecomputable extends Error {}

/** Computes a decision of version 2 anew from the rows before it (docs/ledger.md#rule). */
export function judge(decision: Decision, replay: Replay): Judgement {
  try {
    compare(decision, replay)
    return null
  } catch (error) {
    if (error instanceof Contradiction) return { problem: error.message }
    if (error instanceof NotRecomputable) return { notRecomputable: error.message }
    throw error
  }
}

function compare(decision: Decision, replay: Replay): void {
  const { allowed, reason, summarised } = decision
  const authority = authorityOf(decision)
  const configuration = configurationOf(decision, authority, replay)
  if (!allowed && refusedByCheck(decision, authority, configuration)) return
  if (!allowed && !OF_AUTHORITY.has(reason ?? '')) throw new NotRecomputable(NOT_IN_A_ROW)
  const [principal, bindings] = principalOf(decision, authority, replay)
  const call: Call = { decision, authority, configuration, principal, bindings, replay }
  const refusal = summarised === null ? refusalOf(call) : refusalOfSummary(call)
  if (refusal === (allowed ? null : reason)) return
  const found = refusal === null ? 'allow it' : `refuse it with ${refusal}`
  throw new Contradiction(
    `is ${allowed ? 'allowed' : `refused with ${reason}`}, but the rows before it ${found}`,
  )
}

function authorityOf({ authority, summarised }: Decision): Authority {
  if (authority) return authority
  if (summarised !== null) throw new NotRecomputable('summaries that name no revision')
  throw new Contradiction('names no authority, or one that is not well-formed')
}

function configurationOf(
  { row }: Decision,
  authority: Authority,
  { configurations }: Replay,
): ConfigurationState {
  const found = configurations.get(row.config_digest)
  if (!found) throw new Contradiction('has a config_digest that no config.loaded row describes')
  if (found.mode !== authority.mode || found.noDowngrade !== authority.noDowngrade)
    throw new Contradiction('names another mode than its configuration has')
  return found
}

/** Returns whether a check refused, as it may whatever the authority is. */
function refusedByCheck(
  { reason, refusedBy }: Decision,
  { checks }: Authority,
  { checks: known }: ConfigurationState,
): boolean {
  if (OF_AUTHORITY.has(reason ?? '')) return false
  const refused = checks.some(({ shadow, verdict }) => !shadow && verdict !== 'pass')
  if (!refused && known.some(({ name, shadow }) => !shadow && name === refusedBy))
    throw new Contradiction(`does not say that the check ${refusedBy} refused`)
  return refused
}

type Bindings = ReadonlyMap<string, string>

function principalOf(
  { row, summarised }: Decision,
  { revision }: Authority,
  { principals }: Replay,
): readonly [PrincipalState, Bindings] {
  const id = row.principal_id ?? 'nobody'
  const known = principals.get(id)
  if (!known) throw new Contradiction(`is about ${id}, whom no row made`)
  const last = known.states.at(-1)?.revision ?? 0
  if (summarised === null && revision < last)
    throw new Contradiction(`rests on revision ${revision} of ${id}, but stands behind ${last}`)
  const state = known.states.find((kept) => kept.revision === revision)
  if (state) return [state, known.bindings]
  if (revision < last) throw new NotRecomputable('summaries of a revision long past')
  throw new Contradiction(`rests on revision ${revision} of ${id}, which no row made`)
}

interface Call {
  readonly decision: Decision
  readonly authority: Authority
  readonly configuration: ConfigurationState
  readonly principal: PrincipalState
  readonly bindings: Bindings
  readonly replay: Replay
}

/** Returns the reason of the first question that fails, or null. */
const refusalOf = (call: Call): string | null =>
  refusalOfCaller(call) ??
  refusalOfResource(call) ??
  refusalOfSet(call) ??
  refusalOfTool(call) ??
  refusalOfChecks(call)

function refusalOfCaller({ decision, authority, principal }: Call): string | null {
  const { row, at } = decision
  if (!principal.isActive) return 'principal_deactivated'
  const { thumbprints, spiffeId } = principal
  if (!certificateHolds(row.cert_thumbprint ?? '', thumbprints, spiffeId !== null, at))
    return 'certificate_not_pinned'
  const registered = thumbprintsAt(principal.dpopJkts, at)
  return proofFault(authority.mode, authority.noDowngrade, row.dpop_jkt, registered, authority.tokenBound)
}

/** A summary names neither certificate nor key, and one tool of many. */
function refusalOfSummary(call: Call): string | null {
  const { decision, authority, principal } = call
  if (decision.reason === 'proof_required')
    return refusalOfCaller({ ...call, principal: anyCertificate(call) })
  if (decision.reason !== 'capability_missing') throw new NotRecomputable('summaries of several causes')
  return missingOf(authority.demanded, principal.capabilities, authority.scope) && 'capability_missing'
}

const anyCertificate = ({ principal }: Call): PrincipalState => ({
  ...principal,
  thumbprints: [],
  spiffeId: '',
})

const REACHES_ONE =
  /^mcp_(?:prompts_get|resources_(?:read|subscribe|unsubscribe)|completion_complete|logging_setLevel|response)$/

/** Calls that must name the resource that they reach. */
const reachesOne = ({ row }: Decision): boolean =>
  REACHES_ONE.test(row.action) || (row.action === 'mcp_tools_call' && row.tool !== BUILT_IN_TOOL)

function refusalOfResource(call: Call): string | null {
  const { decision, authority, bindings } = call
  const { reason, row, path } = decision
  const found = resourceOf(call)
  if (!found) {
    if (reason === 'mcp_not_bound' || reason === 'mcp_tool_unknown')
      throw new NotRecomputable('no resource is named, for there was none')
    if (decision.allowed && reachesOne(decision))
      throw new Contradiction('does not name the resource that it reached')
    return null
  }
  const [known, state] = found
  const binding = bindings.get(authority.resource?.id ?? '') ?? null
  if (decision.allowed && authority.binding !== binding && binding !== null)
    throw new Contradiction(`names the binding ${authority.binding ?? 'none'}, but it is ${binding}`)
  const unknown = isUnknown(decision, known, state) ? 'mcp_tool_unknown' : null
  const unbound = binding === null ? 'mcp_not_bound' : null
  // There the resource itself is what is not bound.
  if (DOOR_OF_RESOURCE.test(path) || row.action === 'mcp_response')
    return unbound ?? (state.enabled ? unknown : 'mcp_not_bound')
  return (state.enabled ? unknown : 'mcp_tool_unknown') ?? unbound
}

function resourceOf({ authority, replay }: Call): readonly [KnownResource, ResourceState] | null {
  if (!authority.resource) return null
  const { id, revision } = authority.resource
  const known = replay.resources.get(id)
  const last = known?.states.at(-1)
  if (!known || !last) throw new Contradiction(`names the resource ${id}, which no row made`)
  if (last.revision === revision) return [known, last]
  throw new Contradiction(
    `rests on revision ${revision} of ${id}, but the last one before it is ${last.revision}`,
  )
}

function isUnknown({ row }: Decision, { tools }: KnownResource, state: ResourceState): boolean {
  if (row.action !== 'mcp_tools_call') return false
  const tool = tools.get(toolOf(row.tool, state))
  return !tool || tool.state === 'gone'
}

/** Returns the upstream's own name of a tool. */
function toolOf(tool: string | null, { name }: ResourceState): string {
  if (tool?.startsWith(`${name}.`)) return tool.slice(name.length + 1)
  throw new Contradiction(`is about ${tool ?? 'no tool'}, which is none of ${name}`)
}

function refusalOfSet(call: Call): string | null {
  const { decision, authority, principal } = call
  const expected = demandedOf(call)
  if (!expected.some((demanded) => isSame(demanded, authority.demanded)))
    throw new Contradiction(
      `says that [${authority.demanded.join(', ')}] was demanded, but it is [${expected[0]?.join(', ')}]`,
    )
  const missing = missingOf(authority.demanded, principal.capabilities, authority.scope)
  if (missing === null) return null
  const { requiredCapability: said } = decision
  if (said !== null && said !== missing)
    throw new Contradiction(`says that ${said} is missing, but it is ${missing}`)
  return 'capability_missing'
}

const isSame = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((text, index) => text === b[index])

/** Returns the lists of capabilities of which one must have been demanded. */
function demandedOf(call: Call): readonly (readonly string[])[] {
  const { row } = call.decision
  const byAction = DEMANDED_BY_ACTION.get(row.action)
  if (byAction) return [byAction]
  const prompts = DEMANDED_BY_ACTION.get('mcp_prompts_get') ?? []
  const resources = DEMANDED_BY_ACTION.get('mcp_resources_read') ?? []
  if (row.action === 'mcp_completion_complete') return [prompts, resources]
  const ofCall = demandedByTool(call)
  // Where an empty set was refused, the row names what would have opened anything.
  return call.decision.allowed
    ? ofCall
    : ofCall.flatMap((list) => (list.length === 0 ? [list, ['mcp.tools.call']] : [list]))
}

function demandedByTool(call: Call): readonly (readonly string[])[] {
  const { row } = call.decision
  const { enforceToolsCall: enforced } = call.configuration
  const isAnswer = row.action === 'mcp_response'
  if (row.action === 'mcp_tools_call' && row.tool === BUILT_IN_TOOL) return [demandedOfBuiltIn(enforced)]
  const [, state] = resourceOf(call) ?? []
  if (!state) throw new NotRecomputable('no resource is named')
  const { requiredCapability: all, toolCapabilities: own } = state
  if (row.action === 'mcp_logging_setLevel') return [all === null ? [] : [all]]
  if (isAnswer && row.tool === null) throw new NotRecomputable('answers that name no tool')
  if (row.action !== 'mcp_tools_call' && !isAnswer) throw new NotRecomputable('an action that has no rule')
  const tool = toolOf(row.tool, state)
  const demanded = demandedOfTool(tool, all, own, enforced)
  return isAnswer ? [demanded, demandedOfTool(tool, all, own, false)] : [demanded]
}

function refusalOfTool(call: Call): string | null {
  const { decision, authority } = call
  const { row, reason } = decision
  const found = row.action === 'mcp_tools_call' ? resourceOf(call) : null
  if (!found) return null
  const [{ tools }, state] = found
  const tool = tools.get(toolOf(row.tool, state))
  if (tool?.state !== 'approved') return 'mcp_tool_quarantined'
  if (reason === 'mcp_tool_quarantined')
    throw new NotRecomputable('approved tools that are annotated so that no client may accept them')
  if (authority.pin !== tool.digest)
    throw new Contradiction(
      `was judged against ${authority.pin ?? 'no definition'}, but ${tool.digest} is approved`,
    )
  return null
}

function refusalOfChecks({ decision, authority, configuration }: Call): string | null {
  if (!decision.allowed) return null
  const asked = new Map(authority.checks.map((check) => [check.name, check]))
  for (const { name, digest, shadow } of configuration.checks) {
    if (shadow) continue
    const { verdict, digest: judged, shadow: watched } = asked.get(name) ?? {}
    if (judged !== digest || watched) throw new Contradiction(`does not say what the check ${name} said`)
    if (verdict !== 'pass') return `the check ${name}`
  }
  const unknown = authority.checks.find(
    ({ name }) => !configuration.checks.some((check) => check.name === name),
  )
  if (unknown) throw new Contradiction(`names the check ${unknown.name}, which its configuration has not`)
  return null
}
