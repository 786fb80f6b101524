import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Members } from '../../../db/support/json.ts'
import type { AccessToken, Principal, ToolCall } from '../../../plugins/facts.ts'
import type { Granted } from '../../../plugins/permit.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { calls } from '../aside/aside.ts'
import { Unanswered } from '../aside/threads.ts'
import { HTTP_GET_TOOL } from '../http-get/tool.ts'
import { type HeaderParam, headerParamFault } from '../pinning/header-params.ts'
import { definitionOf, type PinnedDefinition } from '../pinning/pinned-definition.ts'
import type { McpMessage } from '../protocol/message.ts'
import { compileSmall, NOT_CHECKED, quickFault } from '../schema/check.ts'
import { isUsable, type PinnedTool, type Registry } from '../state/registry.ts'
import { type RequestStates, type StateOwner, stateRefused } from '../state/request-state.ts'
import type { McpTarget } from './demand-now.ts'
import type { LargeParams } from './large-params.ts'

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
 * Checks a tool right before it is called: its definition is the approved one (`mcp_tool_quarantined`), the
 * arguments fit it (`mcp_params_invalid`), and so do the headers that repeat them (`mcp_header_mismatch`).
 * Waits only where the schema or the arguments are large, or the schema was not seen lately.
 */
export const mcpTool = (
  registry: Pick<Registry, 'current' | 'tool'>,
): Plugin<Called, { headerParams: readonly HeaderParam[] }> => ({
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
  still: async ({ granted: { target } }) => {
    if (target.kind !== 'tool') return {}
    const { resource: before, tool: called } = target.pinned
    const resource = await registry.current(before)
    const now = resource && (await registry.tool(resource, called.name))
    if (!now?.tool || !isUsable(now.resource, now.tool)) throw quarantined(target.pinned)
    return {}
  },
})

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
  { granted, hangup, largeParams }: Called,
  definition: Checked,
  args: Members,
): Promise<string | null> {
  const { digest, text } = definition
  const span = largeParams?.spans.get('arguments')
  const bytes = span && largeParams?.text.subarray(span.start, span.end)
  const asked = { digest, definition: text, args: bytes ?? JSON.stringify(args) }
  try {
    const { fault, small } = await calls.ask('judgeArguments', asked, {
      key: granted.principal.id,
      signal: hangup.signal,
    })
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

/** The resource that a call goes to. */
export interface Destination {
  readonly resource: McpResource
  /** The upstream's own name of the tool or prompt, where the caller's is another one. */
  readonly name: string | null
  /** The pinned tool, where it is one that is called. */
  readonly pinned: PinnedTool | null
}

/** Returns the destination of a tool's call, or of a method that is relayed. */
export function destinationOf(target: Extract<McpTarget, { kind: 'tool' | 'relay' }>): Destination {
  if (target.kind === 'relay') return { resource: target.resource, name: target.name, pinned: null }
  const { pinned } = target
  return { resource: pinned.resource, name: pinned.tool.name, pinned }
}

/** Names the owner of a state of a multi round-trip request, and its call. */
export function stateOwnerOf(principal: Principal, message: McpMessage, to: Destination): StateOwner {
  const { resource_id: resourceId } = to.resource
  return { principal, resourceId, method: message.method, name: subjectOf(message, to) ?? '' }
}

/** Names the subject of a call as its upstream knows it: a tool, a prompt or a URI. */
export function subjectOf({ params: { name, uri } }: McpMessage, to: Destination): string | null {
  const own = to.name ?? name ?? uri
  return typeof own === 'string' ? own : null
}
