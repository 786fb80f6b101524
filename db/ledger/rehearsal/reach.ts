import type { ReplayedCall } from '../authority/call.ts'
import type { RecordedDecision } from '../authority/decision.ts'
import { isAtDoor, refusalOfResource } from '../authority/reached.ts'
import type { LedgerReplay } from '../authority/replay.ts'
import { bindingName, type HypotheticalChanges } from './changes.ts'

/** At the door of all servers these name none, or need not: they go to the only one that is bound and enabled. */
const UNNAMED: ReadonlySet<string> = new Set([
  'mcp_resources_read',
  'mcp_resources_subscribe',
  'mcp_resources_unsubscribe',
  'mcp_completion_complete',
  'mcp_logging_setLevel',
])

/** Whether, with the changes, a principal has other servers to which a call could go that names none. */
export function reachesElsewhere(
  decision: RecordedDecision,
  subject: string,
  { principals, resources }: LedgerReplay,
  changes: HypotheticalChanges,
): boolean {
  if (!UNNAMED.has(decision.row.action) || isAtDoor(decision)) return false
  const bound = new Set(principals.get(subject)?.bindings.values())
  return [...resources].some(([id, { states }]) => {
    const enabled = states.at(-1)?.enabled ?? false
    const isBound = changes.bindings.get(bindingName(subject, id)) ?? bound.has(id)
    const isEnabled = changes.resources.get(id)?.enabled ?? enabled
    return (bound.has(id) && enabled) !== (isBound && isEnabled)
  })
}

/** The refusal of what a call reaches. A prompt of a server that is disabled is none; a tool of it is unknown. */
export function refusalOfReached(call: ReplayedCall): string | null {
  const refusal = refusalOfResource(call)
  const { row } = call.decision
  const isOfTool = row.action === 'mcp_tools_call'
  return refusal === 'mcp_tool_unknown' && !isOfTool ? 'mcp_params_invalid' : refusal
}
