import { holds, missing } from '../../../plugins/capability.ts'
import type { AccessToken, ToolCall } from '../../../plugins/facts.ts'
import type { Granted } from '../../../plugins/permit.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { headerParamFault } from '../pinning/header-params.ts'
import { definitionOf, type PinnedDefinition } from '../pinning/pinned-definition.ts'
import type { McpMessage } from '../protocol/message.ts'
import { argumentsFault } from '../schema/arguments.ts'
import { isUsable, type PinnedTool } from '../state/registry.ts'
import { type RequestStates, stateRefused } from '../state/request-state.ts'
import { destinationOf, type McpTarget, stateOwnerOf } from './target.ts'

const CALL = 'mcp.tools.call'

interface Asking {
  readonly token: AccessToken | null
  readonly message: McpMessage
  readonly granted: Granted<McpTarget>
}

interface Called extends Arrival, Asking {
  readonly toolCall: ToolCall
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
 */
export const mcpTool: Plugin<Called, object> = {
  name: 'mcp_tool',
  admit: ({ granted: { target }, toolCall, message, headers }) => {
    if (target.kind === 'built_in') checkArguments(BUILT_IN, toolCall)
    if (target.kind !== 'tool') return {}
    const { tool, resource } = target.pinned
    if (!isUsable(resource, tool)) throw quarantined(target.pinned)
    const definition = definitionOf(tool)
    checkArguments(definition, toolCall)
    if (message.era === 'modern') {
      const fault = headerParamFault(definition.headerParams, headers, toolCall.arguments ?? {})
      if (fault !== null) throw new Refusal('mcp_header_mismatch', { message: fault })
    }
    return {}
  },
}

const BUILT_IN = { digest: 'built-in http.get', inputSchema: HTTP_GET_TOOL.inputSchema }

function checkArguments(
  definition: Pick<PinnedDefinition, 'digest' | 'inputSchema'>,
  { arguments: args }: ToolCall,
): void {
  const fault = argumentsFault(definition, args ?? {})
  if (fault !== null) throw new Refusal('mcp_params_invalid', { message: `arguments: ${fault}` })
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
