import { randomUUID } from 'node:crypto'
import type { McpResource } from '../../../db/mcp/resources.ts'
import type { CapabilityDemand } from '../../../plugins/facts.ts'
import type { CallPermit } from '../../../plugins/permit.ts'
import type { PinnedTool } from './registry.ts'
import type { CallerSession } from './sessions.ts'

export interface ServerRequest {
  readonly resource: McpResource
  readonly pinned: PinnedTool | null
  readonly session: CallerSession
  /** The demand of the call that made the upstream ask: the answer passes the same gate. */
  readonly demand: CapabilityDemand
  readonly upstreamId: string
  /** Hands an answer to the upstream, by its own permit or that of the call. JSON text of a whole message. */
  readonly respond: (response: string, permit?: CallPermit) => Promise<void>
}

/** An answer to a request that waits at another process, as the caller gave it. JSON text. */
export interface CallerAnswer {
  readonly member: 'result' | 'error'
  readonly text: string
}

/** The server requests under way, by ids of ours. Only the session that was asked answers, once. */
export class ServerRequests {
  readonly #open = new Map<string, ServerRequest>()
  readonly #prefix: string

  /** `home`: the name of this process among those that share a database; empty if there is no other. */
  constructor(home = '') {
    this.#prefix = home === '' ? 'q-' : `q-${home}-`
  }

  open(request: ServerRequest): string {
    const id = this.#prefix + randomUUID()
    this.#open.set(id, request)
    return id
  }

  find(id: unknown, session: Pick<CallerSession, 'id'> | null): ServerRequest | undefined {
    const request = typeof id === 'string' ? this.#open.get(id) : undefined
    return request && request.session.id === session?.id ? request : undefined
  }

  /** Closes a request. Returns false if it was closed before. */
  close(id: string): boolean {
    return this.#open.delete(id)
  }
}
