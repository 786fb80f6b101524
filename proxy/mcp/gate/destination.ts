import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Principal } from '../../../plugins/facts.ts'
import type { McpMessage } from '../protocol/message.ts'
import type { Era } from '../protocol/versions.ts'
import type { PinnedTool } from '../state/registry.ts'
import type { StateOwner } from '../state/request-state.ts'
import type { Session } from '../state/sessions.ts'
import type { Target } from './target.ts'

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

/** Whom a state of a multi round-trip request belongs to, and for what. */
export function stateOwnerOf(principal: Principal, message: McpMessage, to: Destination): StateOwner {
  const { resource_id: resourceId } = to.resource
  return { principal, resourceId, method: message.method, name: subjectOf(message, to) ?? '' }
}

/** What a call is about, by the name its upstream knows. */
export function subjectOf({ params: { name, uri } }: McpMessage, to: Destination): string | null {
  const own = to.name ?? name ?? uri
  return typeof own === 'string' ? own : null
}
