import { type Call, Contradiction, NotRecomputable } from './call.ts'
import { resourceOf, toolOf } from './reached.ts'
import {
  ANY_CALL,
  BUILT_IN_TOOL,
  DEMANDED_BY_ACTION,
  demandedOfBuiltIn,
  demandedOfTool,
  missingOf,
} from './rule.ts'

/** Asks question 6 (docs/ledger.md#rule): what was demanded is what had to be, and is held. */
export function refusalOfSet(call: Call): string | null {
  const { demanded } = call.authority
  const expected = demandedOf(call)
  if (expected.some((list) => isSame(list, demanded)) || isEmptySet(call, expected))
    return refusalOfHeld(call)
  throw new Contradiction(
    `says that [${demanded.join(', ')}] was demanded, but it is [${expected[0]?.join(', ')}]`,
  )
}

/** The same of a summary, which names no tool: only the action can say what must have been demanded. */
export function refusalOfSummarisedSet(call: Call): string | null {
  const { authority, decision } = call
  const byAction = DEMANDED_BY_ACTION.get(decision.row.action)
  if (byAction && !isSame(byAction, authority.demanded))
    throw new Contradiction(`says that [${authority.demanded.join(', ')}] was demanded, not [${byAction[0]}]`)
  return refusalOfHeld(call)
}

function refusalOfHeld({ authority, principal, decision }: Call): string | null {
  const missing = missingOf(authority.demanded, principal.capabilities, authority.scope)
  if (missing === null) return null
  const { requiredCapability: said, reason, summarised } = decision
  // A summary says it only where all that it stands for have the same.
  if (reason === 'capability_missing' && said !== missing && (said !== undefined || summarised === null))
    throw new Contradiction(`does not say that ${missing} is missing`)
  return 'capability_missing'
}

const isSame = (a: readonly string[], b: readonly string[]): boolean =>
  a.length === b.length && a.every((text, index) => text === b[index])

/** Returns whether the row names what would have opened anything, because an empty set was refused. */
function isEmptySet({ authority, principal, decision }: Call, expected: readonly (readonly string[])[]) {
  const { demanded, scope } = authority
  return (
    decision.reason === 'capability_missing' &&
    isSame(demanded, [ANY_CALL]) &&
    expected.some((list) => list.length === 0) &&
    missingOf([], principal.capabilities, scope) !== null
  )
}

/** Returns the lists of capabilities of which one must be demanded of a call. */
export function demandedOf(call: Call): readonly (readonly string[])[] {
  const { action } = call.decision.row
  const byAction = DEMANDED_BY_ACTION.get(action)
  if (byAction) return [byAction]
  const prompts = DEMANDED_BY_ACTION.get('mcp_prompts_get') ?? []
  const resources = DEMANDED_BY_ACTION.get('mcp_resources_read') ?? []
  return action === 'mcp_completion_complete' ? [prompts, resources] : demandedByTool(call)
}

function demandedByTool(call: Call): readonly (readonly string[])[] {
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
  const tool = toolOf(row.tool, state)
  const demanded = demandedOfTool(tool, all, own, enforced)
  return isAnswer ? [demanded, demandedOfTool(tool, all, own, false)] : [demanded]
}
