import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import { PrincipalQuota } from '../../../plugins/secrets/quota.ts'
import { monotonicClock } from '../../../plugins/secrets/throttle.ts'
import type { CancelRequest, RequestCancellations } from './cancellations.ts'
import { PeerProcesses } from './elsewhere.ts'
import { RemoteServerRequests } from './far-requests.ts'
import type { McpRegistry } from './registry.ts'
import { ServerRequests } from './server-requests.ts'
import type { CallerSession, CallerSessionStore } from './sessions.ts'
import { SharedSessions } from './shared-sessions.ts'

/** The cancellations of one principal in a minute that other processes are told of. */
const MAX_CANCELLED_PER_MINUTE = 600
/** A request's id that others are told of. Characters of JSON text. */
const MAX_ID = 1_024
const CANCELLED = 'mcp-cancelled'

interface SharedStateDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly secret: Buffer
  readonly clock: () => number
  readonly onEnd: (session: CallerSession) => void
  readonly registry: McpRegistry
  readonly cancellations: RequestCancellations
}

interface SharedState {
  readonly sessions: CallerSessionStore
  readonly serverRequests: ServerRequests
  readonly farRequests: RemoteServerRequests
  readonly cancel: CancelRequest
}

/** Makes the state of MCP clients that is theirs at any process their next connection reaches. */
export function sharedState(sources: SharedStateDependencies): SharedState {
  const { database, registry, cancellations } = sources
  const elsewhere = new PeerProcesses(database.notices)
  const serverRequests = new ServerRequests(elsewhere.home)
  return {
    sessions: new SharedSessions(sources),
    serverRequests,
    farRequests: new RemoteServerRequests({ database, registry, here: serverRequests, elsewhere }),
    cancel: cancelEverywhere(database, cancellations),
  }
}

function cancelEverywhere({ notices }: Database, here: RequestCancellations): CancelRequest {
  const quota = new PrincipalQuota(monotonicClock, () => MAX_CANCELLED_PER_MINUTE)
  notices.on(CANCELLED, (text) => {
    const { principal, session, request } = parseJsonObject(Buffer.from(text)) ?? {}
    const caller = {
      principalId: String(principal),
      session: typeof session === 'string' ? { id: session } : null,
    }
    here.cancel(caller, request)
  })
  return (caller, requestId) => {
    here.cancel(caller, requestId)
    if ((JSON.stringify(requestId)?.length ?? MAX_ID) >= MAX_ID || quota.consume(caller.principalId) > 0)
      return
    const session = caller.session?.id ?? null
    notices.notify(CANCELLED, JSON.stringify({ principal: caller.principalId, session, request: requestId }))
  }
}
