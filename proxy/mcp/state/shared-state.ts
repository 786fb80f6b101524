import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { parseJsonObject } from '../../../plugins/json-body/object.ts'
import { Quota } from '../../../plugins/secrets/quota.ts'
import { monotonic } from '../../../plugins/secrets/throttle.ts'
import type { Cancel, Cancellations } from './cancellations.ts'
import { Elsewhere } from './elsewhere.ts'
import { FarRequests } from './far-requests.ts'
import type { Registry } from './registry.ts'
import { ServerRequests } from './server-requests.ts'
import type { CallerSession, Sessions } from './sessions.ts'
import { SharedSessions } from './shared-sessions.ts'

/** The cancellations of one principal in a minute that other processes are told of. */
const MOST_CANCELLED = 600
/** Of a request's id, that others are told of. Characters of JSON text. */
const MAX_ID = 1_024
const CANCELLED = 'mcp-cancelled'

interface Sources {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly secret: Buffer
  readonly clock: () => number
  readonly onEnd: (session: CallerSession) => void
  readonly registry: Registry
  readonly cancellations: Cancellations
}

interface SharedState {
  readonly sessions: Sessions
  readonly serverRequests: ServerRequests
  readonly farRequests: FarRequests
  readonly cancel: Cancel
}

/**
 * Makes the state of MCP clients that is theirs at whichever process their next connection comes to: sessions, the
 * questions that were put to them, and their calls under way.
 */
export function sharedState(sources: Sources): SharedState {
  const { database, registry, cancellations } = sources
  const elsewhere = new Elsewhere(database.notices)
  const serverRequests = new ServerRequests(elsewhere.home)
  return {
    sessions: new SharedSessions(sources),
    serverRequests,
    farRequests: new FarRequests({ database, registry, here: serverRequests, elsewhere }),
    cancel: cancelEverywhere(database, cancellations),
  }
}

function cancelEverywhere({ notices }: Database, here: Cancellations): Cancel {
  const quota = new Quota(monotonic, () => MOST_CANCELLED)
  notices.hear(CANCELLED, (text) => {
    const { principal, session, request } = parseJsonObject(Buffer.from(text)) ?? {}
    const caller = {
      principalId: String(principal),
      session: typeof session === 'string' ? { id: session } : null,
    }
    here.cancel(caller, request)
  })
  return (caller, requestId) => {
    here.cancel(caller, requestId)
    if ((JSON.stringify(requestId)?.length ?? MAX_ID) >= MAX_ID || quota.take(caller.principalId) > 0) return
    const session = caller.session?.id ?? null
    notices.tell(CANCELLED, JSON.stringify({ principal: caller.principalId, session, request: requestId }))
  }
}
