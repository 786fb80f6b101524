import type { McpStanding } from '../../../db/mcp/bindings.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Assertion } from '../../../db/support/statement.ts'
import type { CallRecorder, Recorded } from '../../../plugins/audit/audit.ts'
import type { CallSummary, Demand, Principal, Reached } from '../../../plugins/facts.ts'
import type { Arrival, Plugin, Recorder } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { McpMessage, Peeked } from '../protocol/message.ts'
import { UNREAD } from '../protocol/methods.ts'
import { type Registry, upon } from '../state/registry.ts'
import type { CallerSession, Sessions } from '../state/sessions.ts'

/** The resource of `/v1/mcp/{resource}`, enabled or not, and the id of the caller's binding to it. */
export interface Door {
  readonly resource: McpResource
  readonly binding: string | null
}

/** Names what a call reaches, as it was judged. `pin`: the digest of the approved definition of the tool. */
export const reachedAt = (
  { resource: { resource_id: id, revision }, binding }: Door,
  pin: string | null = null,
): Reached => ({ resource: { id, revision }, binding, pin })

/** Given by the first `mcp_resource_path`. Null at `/v1/mcp`, and where there is no resource of that name. */
export interface DoorFound {
  readonly door: Door | null
}

interface Needs extends Arrival {
  readonly principal: Principal
  readonly message: McpMessage
}

/** The resource that the path names, and the caller's session. Given by `mcp_resource_path`. */
export interface ResourcePath {
  /** The resource of `/v1/mcp/{resource}`, which the principal is bound to; null at `/v1/mcp`. */
  readonly pathResource: McpResource | null
  /** The caller's legacy session, or null where it has none. */
  readonly session: CallerSession | null
}

const NOWHERE: DoorFound = { door: null }

/** Finds the resource that the path names. Refuses nothing: so a refusal of the next one can say of which. */
export function mcpDoor(registry: Registry): Plugin<Needs, DoorFound> {
  return {
    name: 'mcp_resource_path',
    admit: ({ params: { resource: name }, principal }) => {
      if (name === undefined) return NOWHERE
      return upon(registry.resource(name), (resource) => {
        if (!resource) return NOWHERE
        return upon(registry.binding(principal, resource), (binding) => ({ door: { resource, binding } }))
      })
    },
    still: async ({ door, principal }) => {
      if (!door) return NOWHERE
      const resource = await registry.current(door.resource)
      return resource ? { door: { resource, binding: await registry.binding(principal, resource) } } : NOWHERE
    },
  }
}

/**
 * Lets a caller through a door that is open to it, and finds the session of a legacy client. A resource that is
 * unknown and one without a binding are refused alike (`mcp_not_bound`): a path tells nobody which resources
 * there are. A session of another principal, or of another path, does not exist (`mcp_session_unknown`).
 */
export function mcpResourcePath(sessions: Sessions): Plugin<Needs & DoorFound, ResourcePath> {
  return {
    name: 'mcp_resource_path',
    admit: (facts) => {
      const pathResource = openDoor(facts)
      return upon(sessionOf(sessions, facts, pathResource), (session) => ({ pathResource, session }))
    },
    // Its session is the caller's own: nobody else ends it.
    still: (facts) => ({ pathResource: openDoor(facts) }),
  }
}

function openDoor({ params, door }: Needs & DoorFound): McpResource | null {
  if (params.resource === undefined) return null
  if (!door?.resource.enabled || door.binding === null) throw new Refusal('mcp_not_bound')
  return door.resource
}

function sessionOf(
  sessions: Sessions,
  { headers, message, principal, at }: Needs,
  pathResource: McpResource | null,
): CallerSession | null | Promise<CallerSession> {
  const id = headers['mcp-session-id']
  // The stateless revision knows no sessions and ignores the header; initialize begins a new one.
  if (id === undefined || message.era === 'modern' || message.method === 'initialize') return null
  return upon(sessions.find(principal.id, String(id), at), (session) => {
    if (session && session.resourceId === (pathResource?.resource_id ?? null)) return session
    throw new Refusal('mcp_session_unknown')
  })
}

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
