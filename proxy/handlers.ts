import type { Registry } from 'prom-client'
import { audit, outcomeEntry, type Recorded } from '../plugins/audit/audit.ts'
import type { JsonBody } from '../plugins/json-body/json-body.ts'
import type { Granted } from '../plugins/permit.ts'
import type { Arrival, Recorder } from '../plugins/plugin.ts'
import type { AdminContext } from './admin/change.ts'
import type { Setup } from './admin/setup.ts'
import { issueToken } from './auth/issue-token.ts'
import type { Logins } from './auth/login-challenge.ts'
import type { TokenKeys } from './auth/token-keys.ts'
import type { Configuration } from './configuration.ts'
import type { Checks } from './http/health.ts'
import { outcomeOf } from './http/outcome.ts'
import type { Reply } from './http/reply.ts'
import type { Settle } from './http/route.ts'
import type { LlmTarget } from './llm/call.ts'
import { llmHandler } from './llm/handler.ts'
import { listModels } from './llm/models.ts'
import { mcpHandler } from './mcp/handlers/dispatch.ts'
import { endSession, handshake } from './mcp/handlers/handshake.ts'
import { atOnce } from './mcp/http-get/at-once.ts'
import { httpGet } from './mcp/http-get/tool.ts'
import { inspector } from './mcp/pinning/inspect.ts'
import type { Services } from './services.ts'

/** What the doors are made of: the handlers that work, and who records. One set per configuration in force. */
export interface Handlers {
  readonly recorder: Recorder<Arrival & Recorded>
  readonly settle: Settle<Arrival & Recorded>
  /** Counts those who were refused before they were known. */
  readonly anonymous: Recorder<Arrival>
  readonly llm: (facts: Arrival & JsonBody & { granted: Granted<LlmTarget> }) => Promise<Reply>
  readonly models: (facts: Arrival) => Promise<Reply>
  readonly mcp: {
    readonly work: ReturnType<typeof mcpHandler>
    readonly handshake: ReturnType<typeof handshake>
    readonly endSession: ReturnType<typeof endSession>
  }
  readonly readiness: () => Promise<{ draining: boolean; checks: Checks }>
  readonly admin: AdminContext
  readonly setup: Setup
  readonly auth: {
    readonly issue: ReturnType<typeof issueToken>
    readonly logins: Logins
    readonly keys: TokenKeys
    readonly baseUrls: () => readonly string[]
    /** Whether every call must come with a DPoP proof. */
    readonly proofRequired: boolean
  }
  readonly registry: Registry
}

/** Fetches of http.get under way at once: they go anywhere, and may take their time. */
const MAX_FETCHES = 64

/** Puts together what one configuration's doors need. */
export function handlers(services: Services, configuration: Configuration): Handlers {
  const { dataDirectory, ledger, outcomes, anonymous, upstream, seen, keys, logins, baseUrls } = services
  const { database, settings, authority } = dataDirectory
  const { registry, sessions, cancellations, serverRequests, states, changed } = services.mcp
  const mcpUpstream = services.mcp.upstream(configuration.mcp)
  const { enforce_tools_call: enforced, http_get: httpGetOptions } = configuration.mcp
  const { digest: configDigest } = configuration
  const countAnonymous = (reason: string): void => anonymous.count(reason)
  return {
    recorder: audit({ ledger, database, configDigest, countAnonymous }),
    settle: (facts, ended) => {
      seen.set(facts.principal.id, facts.principal)
      outcomes.settle(outcomeEntry(facts, outcomeOf(ended, facts.at), configDigest))
    },
    anonymous: {
      allowed: () => Promise.resolve(null),
      refused: (_facts, { reason }) => {
        countAnonymous(reason)
        return Promise.resolve(null)
      },
    },
    llm: llmHandler(configuration.llm, upstream),
    models: listModels(configuration.llm, upstream),
    mcp: {
      work: mcpHandler({
        registry,
        upstream: mcpUpstream,
        serverRequests,
        cancellations,
        states,
        onToolsChanged: ({ resource_id: id }) => changed.add(id),
        enforced,
        httpGet: httpGetOptions.enabled,
        fetchUrl: atOnce(MAX_FETCHES, httpGet(httpGetOptions)),
      }),
      handshake: handshake({ registry, sessions, cancellations }),
      endSession: endSession(sessions),
    },
    readiness: services.ready,
    admin: {
      database,
      ledger,
      authority,
      organisation: settings.org,
      trustDomain: settings.trustDomain,
      configuration: () => configuration,
      clientCasChanged: services.clientCasChanged,
      mcp: {
        inspect: inspector(database, mcpUpstream, services.clock),
        allowPrivateUpstreams: settings.allowPrivateUpstreams,
      },
    },
    auth: {
      issue: issueToken({ database, ledger, keys, logins, baseUrls, configDigest }),
      logins,
      keys,
      baseUrls,
      proofRequired: configuration.dpopMode === 'required',
    },
    setup: services.setup,
    registry: services.metrics.registry,
  }
}
