import type { ToolCall } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Granted } from '../../../plugins/permit.ts'
import type { Arrival } from '../../../plugins/plugin.ts'
import { type Destination, subjectOf, upstreamEra } from '../gate/destination.ts'
import type { ResourcePath } from '../gate/resource-path.ts'
import type { McpTarget } from '../gate/target.ts'
import { headerParamHeaders } from '../pinning/header-params.ts'
import { definitionOf } from '../pinning/pinned-definition.ts'
import { encodeHeaderValue } from '../protocol/header-values.ts'
import type { McpMessage } from '../protocol/message.ts'
import { NAMED } from '../protocol/methods.ts'
import type { Era } from '../protocol/versions.ts'
import type { CallerSession } from '../state/sessions.ts'
import type { UpstreamCall } from '../upstream/client.ts'
import type { SessionOwner } from '../upstream/sessions.ts'
import { upstreamParams } from './params.ts'

/** The facts about a call before it is dispatched. */
export interface Dispatched extends Arrival, ResourcePath, Pick<JsonBody, 'body' | 'spans'> {
  readonly granted: Granted<McpTarget>
  readonly message: McpMessage
  readonly toolCall: ToolCall
  /** The upstream's own state of a multi round-trip request, where the caller sent one that is its own. */
  readonly requestState: string | null
}

/**
 * Returns the client that an upstream session is opened for. Between eras nobody can be asked, so no
 * capabilities are claimed; nor are roots, which are asked for where this gateway does not listen.
 */
export function clientOf(session: CallerSession | null, era: Era): UpstreamCall['client'] {
  if (session === null || era === 'modern')
    return { capabilities: {}, clientInfo: session?.clientInfo ?? null }
  const { roots, ...capabilities } = session.capabilities
  return { capabilities, clientInfo: session.clientInfo }
}

/** Returns the owner of the upstream session that a call goes by. */
export const ownerOf = ({ granted, session }: Pick<Dispatched, 'granted' | 'session'>): SessionOwner => ({
  principalId: granted.principal.id,
  sessionId: session?.id ?? null,
})

/**
 * Makes a call as its upstream must see it: the caller's bytes with the upstream's own names, headers made
 * from them and none of the caller's, and of the caller's capabilities those that this exchange can carry.
 */
export function outgoing(facts: Dispatched, to: Destination, signal: AbortSignal): UpstreamCall {
  const { message, session, toolCall, requestState } = facts
  const { name, pinned } = to
  const era = upstreamEra(to.resource, session)
  return {
    permit: facts.granted,
    resource: { ...to.resource, era },
    owner: ownerOf(facts),
    method: message.method,
    params: upstreamParams(facts, { era, name, requestState }),
    headers: {
      ...nameHeader(message, to),
      ...(pinned && headerParamHeaders(definitionOf(pinned.tool).headerParams, toolCall.arguments ?? {})),
    },
    client: clientOf(session, era),
    signal,
  }
}

function nameHeader(message: McpMessage, to: Destination): Record<string, string> {
  const subject = subjectOf(message, to)
  return NAMED.has(message.method) && subject !== null ? { 'mcp-name': encodeHeaderValue(subject) } : {}
}
