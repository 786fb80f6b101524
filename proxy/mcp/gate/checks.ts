import type { Members } from '../../../db/json.ts'
import { holds, missing } from '../../../plugins/capability.ts'
import type { AccessToken, ToolCall } from '../../../plugins/facts.ts'
import type { Granted } from '../../../plugins/permit.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { calls } from '../aside/aside.ts'
import { Unanswered } from '../aside/threads.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { type HeaderParam, headerParamFault } from '../pinning/header-params.ts'
import { definitionOf, type PinnedDefinition } from '../pinning/pinned-definition.ts'
import type { McpMessage } from '../protocol/message.ts'
import { compileSmall, NOT_CHECKED, quickFault } from '../schema/arguments.ts'
import { isUsable, type PinnedTool } from '../state/registry.ts'
import { type RequestStates, stateRefused } from '../state/request-state.ts'
import type { LargeParams } from './large-params.ts'
import { destinationOf, type McpTarget, stateOwnerOf } from './target.ts'

const CALL = 'mcp.tools.call'

interface Asking {
  readonly token: AccessToken | null
  readonly message: McpMessage
  readonly granted: Granted<McpTarget>
}

interface Called extends Arrival, Asking {
  readonly toolCall: ToolCall
  readonly largeParams: LargeParams | null
}

/**
 * Gates the method itself, behind the tool's own gate (spec §2.3, docs/protocol.md#mcp-order): with
 * `enforce_tools_call` every call of a tool also demands `mcp.tools.call`. Without it, that capability says
 * nothing by itself.
 */
export function methodGate(enforced: boolean): Plugin<Asking, object> {
  return {
    name: 'mcp_method',
    admit: ({ granted: { principal }, token, message }) => {
      if (!enforced || message.method !== 'tools/call' || holds(principal, token, CALL)) return {}
      throw missing(CALL, `Calling any tool demands ${CALL}, which is not held.`)
    },
  }
}

/**
 * Checks a tool right before it is called: its definition is the approved one (`mcp_tool_quarantined`), the
 * arguments fit it (`mcp_params_invalid`), and so do the headers that repeat them (`mcp_header_mismatch`).
 * Waits only where the schema or the arguments are large, or the schema was not seen lately.
 */
export const mcpTool: Plugin<Called, { headerParams: readonly HeaderParam[] }> = {
  name: 'mcp_tool',
  admit: (facts) => {
    const { target } = facts.granted
    if (target.kind === 'built_in') return checked(facts, BUILT_IN)
    if (target.kind !== 'tool') return { headerParams: [] }
    const { tool, resource } = target.pinned
    if (!isUsable(resource, tool)) throw quarantined(target.pinned)
    const definition = definitionOf(tool)
    return definition instanceof Promise
      ? definition.then((known) => checked(facts, known))
      : checked(facts, definition)
  },
}

type Checked = Pick<PinnedDefinition, 'digest' | 'text' | 'inputSchema' | 'headerParams'>

const BUILT_IN: Checked = {
  digest: 'built-in http.get',
  text: JSON.stringify(HTTP_GET_TOOL),
  inputSchema: HTTP_GET_TOOL.inputSchema,
  headerParams: [],
}

function checked(facts: Called, definition: Checked) {
  const { message, toolCall, headers, largeParams } = facts
  const args = toolCall.arguments ?? {}
  const passed = (fault: string | null): Pick<Checked, 'headerParams'> => {
    if (fault !== null) throw new Refusal('mcp_params_invalid', { message: `arguments: ${fault}` })
    const { headerParams } = definition
    const mismatch = message.era === 'modern' ? headerParamFault(headerParams, headers, args) : null
    if (mismatch !== null) throw new Refusal('mcp_header_mismatch', { message: mismatch })
    return { headerParams }
  }
  const fault = largeParams === null ? quickFault(definition.digest, args) : undefined
  return fault === undefined ? faultAside(facts, definition, args).then(passed) : passed(fault)
}

/** Finds the fault of arguments on a thread, since the one that serves may not take so long. */
async function faultAside(
  { granted, signal, largeParams }: Called,
  definition: Checked,
  args: Members,
): Promise<string | null> {
  const { digest, text } = definition
  const span = largeParams?.spans.get('arguments')
  const bytes = span && largeParams?.text.subarray(span.start, span.end)
  const asked = { digest, definition: text, args: bytes ?? JSON.stringify(args) }
  try {
    const { fault, small } = await calls.ask('judgeArguments', asked, { key: granted.principal.id, signal })
    if (small) compileSmall(definition)
    return fault
  } catch (error) {
    if (error instanceof Unanswered) return NOT_CHECKED
    throw error
  }
}

const quarantined = ({ resource, tool }: PinnedTool): Refusal =>
  new Refusal('mcp_tool_quarantined', { detail: { tool: `${resource.name}.${tool.name}` } })

/**
 * Opens the state of a multi round-trip request, which must be one that was given to this principal for this
 * very call (MCP 2026-07-28, mrtr). Refuses with `mcp_params_invalid`.
 */
export function mcpState(states: RequestStates): Plugin<Called, { requestState: string | null }> {
  return {
    name: 'mcp_state',
    admit: (facts) => {
      const { granted, message } = facts
      const { target } = granted
      const { requestState: sealed } = message.params
      const leaves = target.kind === 'tool' || target.kind === 'relay'
      if (!leaves || sealed === undefined || sealed === null) return { requestState: null }
      // A state that is no text was never sealed, so it was given to nobody.
      if (typeof sealed !== 'string') throw stateRefused()
      return {
        requestState: states.open(sealed, stateOwnerOf(granted.principal, message, destinationOf(target))),
      }
    },
  }
}
