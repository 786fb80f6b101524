import type { Recorded } from '../../../plugins/audit/audit.ts'
import type { CallSummary, Demand } from '../../../plugins/facts.ts'
import type { Arrival, Recorder } from '../../../plugins/plugin.ts'
import type { McpMessage, Peeked } from '../protocol/message.ts'
import { UNREAD } from '../protocol/methods.ts'
import type { ResourcePath } from './endpoint.ts'

/** The facts that may be known of a call that is refused while it is read. */
type Read = Partial<ResourcePath> & { readonly peeked?: Peeked; readonly message?: McpMessage }

type CallRecorder = Recorder<Arrival & Recorded>

/**
 * Records MCP calls. The row of one that is refused before `mcp_target` stands under the call that it seems
 * to be.
 */
export const mcpRecorder = (recorder: CallRecorder): CallRecorder => ({
  ...recorder,
  refused: (facts, refusal, by) =>
    recorder.refused(facts.demand ? facts : { ...facts, ...summaryOfRead(facts as Read) }, refusal, by),
})

interface Summary {
  readonly demand: Demand
  readonly call: CallSummary
}

/**
 * Makes the demand and the call for the row of a call that is refused while it is read: the method it seems
 * to be, and its tool under the whole name where the path says the resource. Behind `mcp_target` the facts
 * `demand` and `call` say it.
 */
function summaryOfRead({ peeked, message, pathResource }: Read): Summary {
  const { demand = UNREAD, tool = null } = peeked ?? {}
  const call = {
    model: null,
    tool: tool !== null && pathResource ? `${pathResource.name}.${tool}` : tool,
    stream: false,
  }
  return { demand, call: message ? { ...call, detail: { mcp_version: message.version } } : call }
}
