import { randomUUID } from 'node:crypto'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { Demand } from '../../../plugins/facts.ts'
import type { PinnedTool } from './registry.ts'
import type { Session } from './sessions.ts'

/** A question of an upstream to the caller of a tool (elicitation, sampling, roots), which the caller has not answered yet. */
export interface ServerRequest {
  readonly resource: McpResource
  /** The pinned tool that asks, where it is one. */
  readonly found: PinnedTool | null
  readonly session: Session
  /** What the call demanded that made the upstream ask: its answer passes the same gate. */
  readonly demand: Demand
  /** The upstream's own id of the question, JSON text. */
  readonly upstreamId: string
}

/**
 * The questions under way between upstreams and callers of the legacy era. Each gets an id of ours, since two upstreams may
 * count alike; only the session that was asked can answer, once.
 */
export class ServerRequests {
  readonly #open = new Map<string, ServerRequest>()

  /** Returns the id that the caller sees. */
  ask(question: ServerRequest): string {
    const id = `q-${randomUUID()}`
    this.#open.set(id, question)
    return id
  }

  /** The question of that id, if it was put to this session. */
  find(id: unknown, session: Session | null): ServerRequest | undefined {
    const question = typeof id === 'string' ? this.#open.get(id) : undefined
    return question && question.session.id === session?.id ? question : undefined
  }

  /** Closes it: its call is over, or it is being answered. False where that had happened before. */
  close(id: string): boolean {
    return this.#open.delete(id)
  }
}
