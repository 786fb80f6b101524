import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Principal } from '../../../plugins/facts.ts'
import type { McpMessage } from '../protocol/message.ts'
import type { Era } from '../protocol/versions.ts'
import type { PinnedTool } from '../state/registry.ts'
import type { StateOwner } from '../state/request-state.ts'
import type { CallerSession } from '../state/sessions.ts'
import type { McpTarget } from './target.ts'

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

/**
 * Chooses the era in which an upstream is spoken to. One that speaks both is spoken to in the older one for a
 * caller that has a session: only so can the caller be asked, and hear logs. One that was never read is taken
 * for a legacy one.
 */
export function upstreamEra({ era, server_facts: facts }: McpResource, session: CallerSession | null): Era {
  return session !== null && facts?.legacy === true ? 'legacy' : (era ?? 'legacy')
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
