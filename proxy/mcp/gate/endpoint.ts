import type { McpBindingAssertion } from '../../../db/mcp/bindings.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { RowAssertion } from '../../../db/support/statement.ts'
import type { CallRecorder, DecisionFacts } from '../../../plugins/audit/audit.ts'
import type { CallGrant, CapabilityDemand, Principal, ReachedResource } from '../../../plugins/facts.ts'
import { type Arrival, type Plugin, type Recorder, StaleAuthority } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { ApprovalRequired } from '../protocol/approval-required.ts'
import type { McpMessage, PeekedCall } from '../protocol/message.ts'
import { UNREAD_DEMAND } from '../protocol/methods.ts'
import { type McpRegistry, mapMaybe } from '../state/registry.ts'
import type { CallerSession, CallerSessionStore } from '../state/sessions.ts'

/** The resource of `/v1/mcp/{resource}`, enabled or not, and the id of the caller's binding to it. */
export interface ResourceAccess {
  readonly resource: McpResource
  readonly binding: string | null
}

export const reachedResource = (
  { resource: { resource_id: id, revision }, binding }: ResourceAccess,
  pin: string | null = null,
): ReachedResource => ({ resource: { id, revision }, binding, pin })

/** Given by the first `mcp_resource_path`. Null at `/v1/mcp`, and if there is no resource of that name. */
export interface PathResourceAccess {
  readonly door: ResourceAccess | null
}

interface McpEndpointInput extends Arrival {
  readonly principal: Principal
  readonly grant?: CallGrant | undefined
  readonly message: McpMessage
}

/** The resource that the path names, and the caller's session. Given by `mcp_resource_path`. */
export interface ResourcePath {
  /** The resource of `/v1/mcp/{resource}`, which the principal is bound to; null at `/v1/mcp`. */
  readonly pathResource: McpResource | null
  readonly session: CallerSession | null
  /** The grant that the caller calls by, as its sessions say it; absent: a certificate. */
  readonly sessionGrant?: string
}

const NOWHERE: PathResourceAccess = { door: null }

/** Finds the resource that the path names. Refuses nothing: so the next plugin's refusal can name it. */
export function mcpResourceLookup(registry: McpRegistry): Plugin<McpEndpointInput, PathResourceAccess> {
  return {
    name: 'mcp_resource_path',
    admit: ({ params: { resource: name }, principal }) => {
      if (name === undefined) return NOWHERE
      return mapMaybe(registry.resource(name), (resource) => {
        if (!resource) return NOWHERE
        return mapMaybe(registry.binding(principal, resource), (binding) => ({ door: { resource, binding } }))
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
 * Lets a caller through a door that is open to it, and finds the session of a legacy client. Refuses an
 * unknown resource and one without a binding alike (`mcp_not_bound`), and a session of another principal, grant
 * or path with `mcp_session_unknown`.
 */
export function mcpResourcePath(
  sessions: CallerSessionStore,
): Plugin<McpEndpointInput & PathResourceAccess, ResourcePath> {
  return {
    name: 'mcp_resource_path',
    admit: (facts) => {
      const pathResource = requirePathResource(facts)
      return mapMaybe(sessionOf(sessions, facts, pathResource), (session) => {
        const grant = sessionGrant(facts)
        return { pathResource, session, ...(grant !== undefined && { sessionGrant: grant }) }
      })
    },
    // Its session is the caller's own: nobody else ends it.
    still: (facts) => ({ pathResource: requirePathResource(facts) }),
  }
}

function requirePathResource({ params, door }: McpEndpointInput & PathResourceAccess): McpResource | null {
  if (params.resource === undefined) return null
  if (!door?.resource.enabled || door.binding === null) throw new Refusal('mcp_not_bound')
  return door.resource
}

/** Names the grant that a caller calls by, with its grade; undefined: by a certificate. */
export const sessionGrant = ({ grant }: { readonly grant?: CallGrant | undefined }): string | undefined =>
  grant && `${grant.id} ${grant.bound}`

function sessionOf(
  sessions: CallerSessionStore,
  facts: McpEndpointInput,
  pathResource: McpResource | null,
): CallerSession | null | Promise<CallerSession> {
  const { headers, message, principal, at } = facts
  const id = headers['mcp-session-id']
  // The stateless revision knows no sessions and ignores the header; initialize begins a new one.
  if (id === undefined || message.era === 'modern' || message.method === 'initialize') return null
  return mapMaybe(sessions.find(principal.id, String(id), at), (session) => {
    const isOfPath = session?.resourceId === (pathResource?.resource_id ?? null)
    // Whoever stole a token gets into no session of a better proof.
    if (session && isOfPath && session.grant === sessionGrant(facts)) return session
    throw new Refusal('mcp_session_unknown')
  })
}

type PartialCallFacts = Partial<PathResourceAccess> & {
  readonly peeked?: PeekedCall
  readonly message?: McpMessage
}

type RecordedCallFacts = Arrival & Partial<DecisionFacts>

/** Records MCP calls. A row rests on the call's resource and its binding, or that there is none. */
export const mcpRecorder = (
  recorder: CallRecorder,
  standing: McpBindingAssertion,
): Recorder<Arrival & DecisionFacts> => ({
  ...recorder,
  allowed: (facts) =>
    facts.approval?.late
      ? Promise.reject(new StaleAuthority('the call was held for its approval'))
      : recorder.allowed(facts, standingOf(facts, standing)),
  refused: (facts, refusal, by) => {
    const known = facts.demand ? facts : { ...facts, ...summaryOfRead(facts as PartialCallFacts) }
    const opening = refusal instanceof ApprovalRequired ? refusal.opening : null
    return recorder.refused(known, refusal, by, standingOf(known, standing), opening)
  },
})

function standingOf(
  { principal, reached }: RecordedCallFacts,
  standing: McpBindingAssertion,
): readonly RowAssertion[] {
  if (!principal || !reached) return []
  const { resource, binding } = reached
  const { type, id: principalId } = principal
  return [standing({ type, principalId, resourceId: resource.id, revision: resource.revision, binding })]
}

/** Makes the facts for the row of a call that is refused before `mcp_target`: what it seems to be. */
function summaryOfRead({
  peeked,
  message,
  door,
}: PartialCallFacts): Pick<DecisionFacts, 'demand' | 'call' | 'reached'> {
  const { demand = UNREAD_DEMAND, tool: named = null } = peeked ?? {}
  const tool = named !== null && door ? `${door.resource.name}.${named}` : named
  const detail = {
    ...(message && { mcp_version: message.version }),
    ...(door && { resource: door.resource.name }),
  }
  return {
    demand,
    call: { model: null, tool, stream: false, ...(message && { detail }) },
    reached: door && !isNameless(demand, tool) ? reachedResource(door) : null,
  }
}

/** A call of a tool whose name a row cannot hold says too little about its target. */
const isNameless = ({ action }: CapabilityDemand, tool: string | null): boolean =>
  action === 'mcp_tools_call' && tool === null
