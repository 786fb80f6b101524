import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Demand, Principal, ToolCall } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import type { ResourcePath } from '../gate/resource-path.ts'
import type { Target } from '../gate/target.ts'
import { encodeHeaderValue, headerParamHeaders } from '../pinning/header-params.ts'
import { definitionOf } from '../pinning/pinned-definition.ts'
import type { McpMessage } from '../protocol/message.ts'
import { NAMED } from '../protocol/methods.ts'
import type { Era } from '../protocol/versions.ts'
import type { PinnedTool } from '../state/registry.ts'
import type { StateOwner } from '../state/request-state.ts'
import type { Session } from '../state/sessions.ts'
import type { Owner, UpstreamCall } from '../upstream/client.ts'
import { upstreamParams } from './params.ts'

/** What was established about a call before it is dispatched. */
export interface Dispatched extends Arrival, ResourcePath, Pick<JsonBody, 'body' | 'spans'> {
  readonly principal: Principal
  readonly message: McpMessage
  readonly demand: Demand
  readonly toolCall: ToolCall
  /** The upstream's own state of a multi round-trip request, where the caller sent one that is its own. */
  readonly requestState: string | null
}

/** Where a call goes. `name`: what the upstream calls the thing, where the caller calls it otherwise. */
export interface Destination {
  readonly resource: McpResource
  readonly name: string | null
  /** The pinned tool, where it is one that is called. */
  readonly found: PinnedTool | null
}

/** Where a tool, or what is relayed, goes. */
export function destinationOf(target: Extract<Target, { kind: 'tool' | 'relay' }>): Destination {
  if (target.kind === 'relay') return { resource: target.resource, name: target.name, found: null }
  const { resource, tool } = target.found
  return { resource, name: tool.name, found: target.found }
}

/**
 * The era in which an upstream is spoken to. One of both is spoken to in the older one by a caller that has initialized
 * there: only so can it be asked, and hear logs. One that was never read is taken for one of the older revisions.
 */
export function eraOf({ era, server_facts: facts }: McpResource, session: Session | null): Era {
  return session !== null && facts?.legacy === true ? 'legacy' : (era ?? 'legacy')
}

/**
 * What an upstream session is opened with. Between eras nobody can be asked, so nobody is said to be; roots are asked for
 * where this gateway does not listen.
 */
export function clientOf(session: Session | null, era: Era): UpstreamCall['client'] {
  if (session === null || era === 'modern')
    return { capabilities: {}, clientInfo: session?.clientInfo ?? null }
  const { roots, ...capabilities } = session.capabilities
  return { capabilities, clientInfo: session.clientInfo }
}

/** Whose upstream session a call goes by. */
export const ownerOf = ({ principal, session }: Pick<Dispatched, 'principal' | 'session'>): Owner => ({
  principalId: principal.id,
  sessionId: session?.id ?? null,
})

/** Whom a state of a multi round-trip request belongs to, and for what. */
export function stateOwnerOf(
  { principal, message }: Pick<Dispatched, 'principal' | 'message'>,
  to: Destination,
): StateOwner {
  const { resource_id: resourceId } = to.resource
  return { principal, resourceId, method: message.method, name: subjectOf(message, to) ?? '' }
}

/**
 * A call as its upstream must see it: the caller's bytes with the upstream's own names, headers made from them and nothing
 * of the caller's, and of the caller's capabilities those that this exchange can carry.
 */
export function outgoing(facts: Dispatched, to: Destination, signal: AbortSignal): UpstreamCall {
  const { message, session, toolCall, requestState } = facts
  const { name, found } = to
  const era = eraOf(to.resource, session)
  return {
    resource: { ...to.resource, era },
    owner: ownerOf(facts),
    method: message.method,
    params: upstreamParams(facts, { era, name, requestState }),
    headers: {
      ...nameHeader(message, to),
      ...(found && headerParamHeaders(definitionOf(found.tool).headerParams, toolCall.arguments ?? {})),
    },
    client: clientOf(session, era),
    signal,
  }
}

/** What a call is about, by the name its upstream knows. */
function subjectOf({ params: { name, uri } }: McpMessage, to: Destination): string | null {
  const own = to.name ?? name ?? uri
  return typeof own === 'string' ? own : null
}

function nameHeader(message: McpMessage, to: Destination): Record<string, string> {
  const subject = subjectOf(message, to)
  return NAMED.has(message.method) && subject !== null ? { 'mcp-name': encodeHeaderValue(subject) } : {}
}
