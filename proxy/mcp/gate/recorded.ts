import type { McpStanding } from '../../../db/mcp/bindings.ts'
import type { Assertion } from '../../../db/statement.ts'
import type { CallRecorder, Recorded } from '../../../plugins/audit/audit.ts'
import type { CallSummary, Demand, Reached } from '../../../plugins/facts.ts'
import type { Arrival, Recorder } from '../../../plugins/plugin.ts'
import type { McpMessage, Peeked } from '../protocol/message.ts'
import { UNREAD } from '../protocol/methods.ts'
import { type DoorFound, reachedAt } from './endpoint.ts'

/** The facts that may be known of a call that is refused while it is read. */
type Read = Partial<DoorFound> & { readonly peeked?: Peeked; readonly message?: McpMessage }

type Known = Arrival & Partial<Recorded>

/**
 * Records MCP calls. The row of one, granted or refused by authority, also rests on the resource that it is for and
 * on the binding to it, or that there is none. The row of one that is refused before `mcp_target` stands under the
 * call that it seems to be.
 */
export const mcpRecorder = (recorder: CallRecorder, standing: McpStanding): Recorder<Arrival & Recorded> => ({
  ...recorder,
  allowed: (facts) => recorder.allowed(facts, standingOf(facts, standing)),
  refused: (facts, refusal, by) => {
    const known = facts.demand ? facts : { ...facts, ...summaryOfRead(facts as Read) }
    return recorder.refused(known, refusal, by, standingOf(known, standing))
  },
})

function standingOf({ principal, reached }: Known, standing: McpStanding): readonly Assertion[] {
  if (!principal || !reached) return []
  const { resource, binding } = reached
  const { type, id: principalId } = principal
  return [standing({ type, principalId, resourceId: resource.id, revision: resource.revision, binding })]
}

interface Summary {
  readonly demand: Demand
  readonly call: CallSummary
  readonly reached: Reached | null
}

/**
 * Makes the facts for the row of a call that is refused while it is read: the method it seems to be, its tool under
 * the whole name where the path says the resource, and that resource. Behind `mcp_target` the facts themselves say
 * it.
 */
function summaryOfRead({ peeked, message, door }: Read): Summary {
  const { demand = UNREAD, tool: named = null } = peeked ?? {}
  const tool = named !== null && door ? `${door.resource.name}.${named}` : named
  const detail = {
    ...(message && { mcp_version: message.version }),
    ...(door && { resource: door.resource.name }),
  }
  return {
    demand,
    call: { model: null, tool, stream: false, ...(message && { detail }) },
    reached: door && !isNameless(demand, tool) ? reachedAt(door) : null,
  }
}

/** A call of a tool without a name that a row can hold says too little of what it was for. */
const isNameless = ({ action }: Demand, tool: string | null): boolean =>
  action === 'mcp_tools_call' && tool === null
