import type { Database } from '../../db/database.ts'
import { limitsOf, type McpOptions } from './options.ts'
import { Cancellations } from './state/cancellations.ts'
import { openRegistry, type Registry } from './state/registry.ts'
import { type RequestStates, requestStates } from './state/request-state.ts'
import { ServerRequests } from './state/server-requests.ts'
import { CallerSessions } from './state/sessions.ts'
import { type McpUpstream, openMcpUpstream } from './upstream/client.ts'

interface Opening {
  readonly database: Database
  /** Reads the secret of a resource by its reference. */
  readonly upstreamSecret: (reference: string) => Promise<string>
  readonly allowPrivate: boolean
  /** Shared by every replica: another one accepts what this one signs. */
  readonly secret: Buffer
  readonly clock: () => number
}

/** The state of the MCP endpoint for as long as the process lives, whichever configuration is in force. */
export interface Mcp {
  readonly registry: Registry
  readonly sessions: CallerSessions
  readonly serverRequests: ServerRequests
  readonly cancellations: Cancellations
  readonly states: RequestStates
  /** The resources that announced a change of their tools, by id: read again soon. */
  readonly changed: Set<string>
  /**
   * Opens the connections to MCP servers with these limits. Those before, if the limits differ, end when
   * their calls have.
   */
  readonly upstream: (options: McpOptions) => McpUpstream
  readonly close: () => Promise<void>
}

export function openMcp({ database, upstreamSecret, allowPrivate, secret, clock }: Opening): Mcp {
  let current: { readonly key: string; readonly upstream: McpUpstream } | null = null
  const upstream: Mcp['upstream'] = (options) => {
    const limits = limitsOf(options)
    const key = JSON.stringify(limits)
    if (current?.key === key) return current.upstream
    void current?.upstream.close()
    current = {
      key,
      upstream: openMcpUpstream({ ...limits, allowPrivate, clock, secret: upstreamSecret }),
    }
    return current.upstream
  }
  const sessions = new CallerSessions(({ principalId, id }) => {
    void current?.upstream.endSession(principalId, id)
  })
  return {
    registry: openRegistry(database),
    sessions,
    serverRequests: new ServerRequests(),
    cancellations: new Cancellations(),
    states: requestStates(secret),
    changed: new Set(),
    upstream,
    close: async () => current?.upstream.close(),
  }
}
