import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { accountNotEnded } from '../../db/mcp/accounts.ts'
import type { McpResource } from '../../db/mcp/resources.ts'
import { addressIsSaid } from '../../db/mcp/said-addresses.ts'
import { principalOfRef } from '../../db/principals/read.ts'
import { NO_NOTICES } from '../../db/support/notices.ts'
import { parseJsonObject } from '../../plugins/json-body/object.ts'
import { PrincipalQuota } from '../../plugins/secrets/quota.ts'
import { monotonicClock } from '../../plugins/secrets/throttle.ts'
import type { ResolveHost } from '../egress/agent.ts'
import { type AccountSources, callAccountFinder, type FindCallAccount } from './gate/account.ts'
import { CallAccount } from './gate/call-account.ts'
import { limitsOf, type McpOptions } from './options.ts'
import { type CancelRequest, RequestCancellations } from './state/cancellations.ts'
import { PeerProcesses, RemoteServerRequests } from './state/far-requests.ts'
import { ListedUris } from './state/listed-uris.ts'
import { type McpRegistry, openRegistry } from './state/registry.ts'
import { type RequestStates, requestStates } from './state/request-state.ts'
import { ServerRequests } from './state/server-requests.ts'
import { type CallerSession, type CallerSessionStore, CallerSessions } from './state/sessions.ts'
import { SharedSessions } from './state/shared-sessions.ts'
import { type McpUpstream, openMcpUpstream } from './upstream/client.ts'
import { mcpUpstreamFailure } from './upstream/errors.ts'

interface McpRuntimeDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly upstreamSecret: (reference: string) => Promise<string>
  readonly allowPrivate: boolean
  /** The look-up of servers' names. Default: one apart from all others. */
  readonly resolve?: ResolveHost
  /** Shared by every replica: another one accepts what this one signs. */
  readonly secret: Buffer
  readonly clock: () => number
  /** The accounts of callers; null: the listener for people is closed. */
  readonly accounts?: AccountSources | null
  /** Hears of what somebody has edited in the database. */
  readonly edited?: (what: string) => void
}

/** The state of the MCP endpoint for as long as the process lives, whichever configuration is in force. */
export interface McpRuntime {
  readonly registry: McpRegistry
  readonly sessions: CallerSessionStore
  readonly serverRequests: ServerRequests
  /** The requests that wait at other processes; absent if there are none. */
  readonly farRequests?: RemoteServerRequests | undefined
  readonly cancellations: RequestCancellations
  readonly cancel: CancelRequest
  readonly states: RequestStates
  readonly listedUris: ListedUris
  /** Null: the listener for people is closed. */
  readonly accounts: AccountSources | null
  readonly findAccount: FindCallAccount
  /** The resources that announced a change of their tools, by id: read again soon. */
  readonly changed: Set<string>
  /** Notes the same at the process that reads for all, too. */
  readonly announce: (resourceId: string) => void
  /** Opens the connections with these limits. Those before, if the limits differ, end with their calls. */
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
  accounts = null,
  edited,
}: McpRuntimeDependencies): McpRuntime {
  const said = addressIsSaid(database)
  const isSaid = async (resource: McpResource): Promise<boolean> => {
    const is = await said(resource)
    if (!is) edited?.(`the address or credentials of the server ${resource.name}`)
    return is
  }
  let current: { readonly key: string; readonly upstream: McpUpstream } | null = null
  const upstream: McpRuntime['upstream'] = (options) => {
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
        isSaid,
        ...(accounts && { readerOf: readerFinder(database, accounts) }),
      }),
    }
    return current.upstream
  }
  const onEnd = ({ principalId, id }: CallerSession): void => {
    void current?.upstream.endSession(principalId, id)
  }
  const registry = openRegistry(database)
  const states = requestStates(secret)
  const cancellations = new RequestCancellations()
  const changed = new Set<string>()
  database.notices.on(TOOLS_CHANGED, (id) => changed.add(id))
  return {
    registry,
    cancellations,
    ...(database.notices === NO_NOTICES
      ? {
          sessions: new CallerSessions(onEnd),
          serverRequests: new ServerRequests(),
          cancel: (caller, requestId) => cancellations.cancel(caller, requestId),
        }
      : sharedState({ database, ledger, secret, clock, onEnd, registry, cancellations })),
    states,
    accounts,
    findAccount: callAccountFinder({ accounts, states, database, clock }),
    listedUris: new ListedUris(),
    changed,
    announce: (id) => {
      // An upstream may announce without end: once is enough until somebody has looked.
      if (!changed.has(id)) database.notices.notify(TOOLS_CHANGED, id)
      changed.add(id)
    },
    upstream,
    close: async () => current?.upstream.close(),
  }
}

/** Finds the account that the definitions of a server are read by. Fails as the server would. */
function readerFinder(
  database: Database,
  { accounts }: AccountSources,
): (resource: McpResource) => Promise<CallAccount> {
  const notEnded = accountNotEnded(database)
  const consent = () =>
    mcpUpstreamFailure('the account of its reader has ended, or does not suffice: connect it again')
  return async (resource) => {
    const reader = await principalOfRef(database, resource.oauth?.reader ?? '')
    if (!reader?.is_active) throw mcpUpstreamFailure('its reader is erased or deactivated: name another one')
    const { principal_id: id, principal_type: type } = reader
    const found = await accounts.find({ id, type }, resource)
    if (!found) throw mcpUpstreamFailure('its reader has connected no account there yet')
    return new CallAccount({ accounts, resource, consent, notEnded }, found)
  }
}

/** The cancellations of one principal in a minute that other processes are told of. */
const MAX_CANCELLED_PER_MINUTE = 600
/** A request's id that others are told of. Characters of JSON text. */
const MAX_ID = 1_024
const CANCELLED = 'mcp-cancelled'

interface SharedStateDependencies
  extends Pick<McpRuntimeDependencies, 'database' | 'ledger' | 'secret' | 'clock'> {
  readonly onEnd: (session: CallerSession) => void
  readonly registry: McpRegistry
  readonly cancellations: RequestCancellations
}

/** Makes the state of MCP clients that is theirs at any process their next connection reaches. */
function sharedState(
  sources: SharedStateDependencies,
): Pick<McpRuntime, 'sessions' | 'serverRequests' | 'farRequests' | 'cancel'> {
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
