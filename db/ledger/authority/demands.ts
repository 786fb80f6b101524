import { NotRecomputable, type ReplayedCall, RowContradiction } from './decision.ts'
import { resourceOf, upstreamToolName } from './reached.ts'
import {
  ANY_CALL_CAPABILITY,
  BUILT_IN_TOOL,
  CAPABILITIES_BY_ACTION,
  demandedOfBuiltIn,
  demandedOfTool,
  missingCapability,
} from './rule.ts'

/** Asks question 6 (docs/ledger.md#rule): the right capabilities were demanded, and are held. */
export function refusalOfCapabilities(call: ReplayedCall): string | null {
  const { demanded } = call.authority
  const expected = expectedDemands(call)
  if (expected.some((list) => isSame(list, demanded)) || isEmptySet(call, expected))
    return refusalOfHeld(call)
  throw new RowContradiction(
    `says that [${demanded.join(', ')}] was demanded, but it is [${expected[0]?.join(', ')}]`,
  )
}

/** The same of a summary, which names no tool: only the action can say what must have been demanded. */
export function refusalOfSummarisedCapabilities(call: ReplayedCall): string | null {
  const { authority, decision } = call
  const byAction = CAPABILITIES_BY_ACTION.get(decision.row.action)
  if (byAction && !isSame(byAction, authority.demanded))
    throw new RowContradiction(
      `says that [${authority.demanded.join(', ')}] was demanded, not [${byAction[0]}]`,
    )
  return refusalOfHeld(call)
}

function refusalOfHeld({ authority, principal, decision }: ReplayedCall): string | null {
  const missing = missingCapability(authority.demanded, principal.capabilities, authority.scope)
  if (missing === null) return null
  const { requiredCapability: said, reason, summarised } = decision
  // A summary says it only if all its calls have the same.
  if (reason === 'capability_missing' && said !== missing && (said !== undefined || summarised === null))
    throw new RowContradiction(`does not say that ${missing} is missing`)
  return 'capability_missing'
}

const isSame = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((text, index) => text === b[index])

/** Returns whether the row names what would have opened anything, because an empty set was refused. */
function isEmptySet(
  { authority, principal, decision }: ReplayedCall,
  expected: readonly (readonly string[])[],
) {
  const { demanded, scope } = authority
  return (
    decision.reason === 'capability_missing' &&
    isSame(demanded, [ANY_CALL_CAPABILITY]) &&
    expected.some((list) => list.length === 0) &&
    missingCapability([], principal.capabilities, scope) !== null
  )
}

export function expectedDemands(call: ReplayedCall): readonly (readonly string[])[] {
  const { action } = call.decision.row
  const byAction = CAPABILITIES_BY_ACTION.get(action)
  if (byAction) return [byAction]
  const prompts = CAPABILITIES_BY_ACTION.get('mcp_prompts_get') ?? []
  const resources = CAPABILITIES_BY_ACTION.get('mcp_resources_read') ?? []
  return action === 'mcp_completion_complete' ? [prompts, resources] : demandedByTool(call)
}

function demandedByTool(call: ReplayedCall): readonly (readonly string[])[] {
  const { row } = call.decision
  const { enforceToolsCall: enforced } = call.configuration
  const isAnswer = row.action === 'mcp_response'
  const [, state] = resourceOf(call) ?? []
  if (!state && row.action === 'mcp_tools_call' && row.tool === BUILT_IN_TOOL)
    return [demandedOfBuiltIn(enforced)]
  if (!state) throw new NotRecomputable('no resource is named')
  const { requiredCapability: all, toolCapabilities: own } = state
  if (row.action === 'mcp_logging_setLevel') return [all === null ? [] : [all]]
  if (isAnswer && row.tool === null) throw new NotRecomputable('answers that name no tool')
  if (row.action !== 'mcp_tools_call' && !isAnswer) throw new NotRecomputable('an action that has no rule')
  const tool = upstreamToolName(row.tool, state)
  const demanded = demandedOfTool(tool, all, own, enforced)
  return isAnswer ? [demanded, demandedOfTool(tool, all, own, false)] : [demanded]
}
