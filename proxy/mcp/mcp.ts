import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { NOBODY } from '../../db/support/notices.ts'
import type { Resolve } from '../egress/agent.ts'
import { limitsOf, type McpOptions } from './options.ts'
import { type Cancel, Cancellations } from './state/cancellations.ts'
import type { FarRequests } from './state/far-requests.ts'
import { openRegistry, type Registry } from './state/registry.ts'
import { type RequestStates, requestStates } from './state/request-state.ts'
import { ServerRequests } from './state/server-requests.ts'
import { type CallerSession, CallerSessions, type Sessions } from './state/sessions.ts'
import { sharedState } from './state/shared-state.ts'
import { type McpUpstream, openMcpUpstream } from './upstream/client.ts'

interface Opening {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  /** Reads the secret of a resource by its reference. */
  readonly upstreamSecret: (reference: string) => Promise<string>
  readonly allowPrivate: boolean
  /** The look-up of servers' names. Default: one apart from all others. */
  readonly resolve?: Resolve
  /** Shared by every replica: another one accepts what this one signs. */
  readonly secret: Buffer
  readonly clock: () => number
}

/** The state of the MCP endpoint for as long as the process lives, whichever configuration is in force. */
export interface Mcp {
  readonly registry: Registry
  readonly sessions: Sessions
  readonly serverRequests: ServerRequests
  /** Those that wait at other processes; absent where there are none. */
  readonly farRequests?: FarRequests | undefined
  readonly cancellations: Cancellations
  /** Takes back a request of the caller's, at whichever process it is. */
  readonly cancel: Cancel
  readonly states: RequestStates
  /** The resources that announced a change of their tools, by id: read again soon. */
  readonly changed: Set<string>
  /** Notes that a resource has announced a change, here and at the process that reads for all. */
  readonly announce: (resourceId: string) => void
  /**
   * Opens the connections to MCP servers with these limits. Those before, if the limits differ, end when
   * their calls have.
   */
  readonly upstream: (options: McpOptions) => McpUpstream
  readonly close: () => Promise<void>
}

const TOOLS_CHANGED = 'tools-changed'

export function openMcp({
  database,
  ledger,
  upstreamSecret,
  allowPrivate,
  resolve,
  secret,
  clock,
}: Opening): Mcp {
  let current: { readonly key: string; readonly upstream: McpUpstream } | null = null
  const upstream: Mcp['upstream'] = (options) => {
    const limits = limitsOf(options)
    const key = JSON.stringify(limits)
    if (current?.key === key) return current.upstream
    void current?.upstream.close()
    current = {
      key,
      upstream: openMcpUpstream({
        ...limits,
        allowPrivate,
        ...(resolve && { resolve }),
        clock,
        secret: upstreamSecret,
      }),
    }
    return current.upstream
  }
  const onEnd = ({ principalId, id }: CallerSession): void => {
    void current?.upstream.endSession(principalId, id)
  }
  const registry = openRegistry(database)
  const cancellations = new Cancellations()
  const changed = new Set<string>()
  database.notices.hear(TOOLS_CHANGED, (id) => changed.add(id))
  return {
    registry,
    cancellations,
    ...(database.notices === NOBODY
      ? {
          sessions: new CallerSessions(onEnd),
          serverRequests: new ServerRequests(),
          cancel: (caller, requestId) => cancellations.cancel(caller, requestId),
        }
      : sharedState({ database, ledger, secret, clock, onEnd, registry, cancellations })),
    states: requestStates(secret),
    changed,
    announce: (id) => {
      // An upstream may announce without end: once is enough until somebody has looked.
      if (!changed.has(id)) database.notices.tell(TOOLS_CHANGED, id)
      changed.add(id)
    },
    upstream,
    close: async () => current?.upstream.close(),
  }
}
