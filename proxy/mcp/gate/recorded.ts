import type { McpStanding } from '../../../db/mcp/bindings.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Assertion } from '../../../db/statement.ts'
import type { CallRecorder, Recorded } from '../../../plugins/audit/audit.ts'
import type { CallSummary, Demand } from '../../../plugins/facts.ts'
import type { Granted } from '../../../plugins/permit.ts'
import type { Arrival, Recorder } from '../../../plugins/plugin.ts'
import type { McpMessage, Peeked } from '../protocol/message.ts'
import { UNREAD } from '../protocol/methods.ts'
import type { ResourcePath } from './endpoint.ts'
import type { McpTarget } from './target.ts'

/** The facts that may be known of a call that is refused while it is read. */
type Read = Partial<ResourcePath> & { readonly peeked?: Peeked; readonly message?: McpMessage }

type Judged = Arrival &
  Recorded &
  Pick<ResourcePath, 'pathResource'> & { readonly granted: Granted<McpTarget> }

/**
 * Records MCP calls. An allowed one also rests on the resource that it reaches, the binding to it, and the
 * tool as it was approved. The row of one that is refused before `mcp_target` stands under the call that it seems
 * to be.
 */
export const mcpRecorder = (recorder: CallRecorder, standing: McpStanding): Recorder<Judged> => ({
  ...recorder,
  allowed: (facts) => recorder.allowed(facts, standingOf(facts, standing)),
  refused: (facts, refusal, by) =>
    recorder.refused(facts.demand ? facts : { ...facts, ...summaryOfRead(facts as Read) }, refusal, by),
})

function standingOf(
  { principal, pathResource, granted: { target } }: Judged,
  standing: McpStanding,
): readonly Assertion[] {
  const resource = judgedResource(target) ?? pathResource
  if (!resource) return []
  const { resource_id: id, revision } = resource
  const asserted = [standing.resource(id, revision), standing.binding(principal.type, principal.id, id)]
  if (target.kind !== 'tool') return asserted
  const { name, digest } = target.pinned.tool
  return [...asserted, standing.tool(id, name, digest ?? '')]
}

function judgedResource(target: McpTarget): McpResource | null {
  if (target.kind === 'tool') return target.pinned.resource
  return target.kind === 'relay' || target.kind === 'answer' ? target.resource : null
}

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
