import type { Registry } from 'prom-client'
import { audit, outcomeEntry, type Recorded } from '../plugins/audit.ts'
import type { Granted, Principal } from '../plugins/facts.ts'
import type { JsonBody } from '../plugins/json-body.ts'
import type { Outcomes } from '../plugins/outcomes.ts'
import type { Arrival, Recorder } from '../plugins/plugin.ts'
import type { Strangers } from '../plugins/strangers.ts'
import type { AdminContext } from './admin/change.ts'
import type { Setup } from './admin/setup.ts'
import { issueToken } from './auth/issue-token.ts'
import type { Logins } from './auth/login-challenge.ts'
import type { TokenKeys } from './auth/token-keys.ts'
import type { Configuration } from './configuration.ts'
import type { Checks } from './health.ts'
import type { House } from './house.ts'
import type { LlmCall } from './llm/call.ts'
import { llmHandler } from './llm/handler.ts'
import { listModels } from './llm/models.ts'
import type { Upstream } from './llm/upstream.ts'
import { outcomeOf } from './outcome.ts'
import type { Reply } from './reply.ts'
import type { Settle } from './route.ts'
import type { WatchedLedger } from './watched-ledger.ts'

/** What the doors are made of: the handlers that work, and who records. One set per configuration in force. */
export interface RouteSources {
  readonly recorder: Recorder<Arrival & Recorded>
  readonly settle: Settle<Arrival & Recorded>
  /** Counts those who were refused before they were known. */
  readonly strangers: Recorder<Arrival>
  readonly llm: (facts: Arrival & JsonBody & { call: LlmCall; granted: Granted }) => Promise<Reply>
  readonly models: (facts: Arrival) => Promise<Reply>
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

interface Parts {
  readonly configuration: Configuration
  readonly house: House
  readonly ledger: WatchedLedger
  readonly outcomes: Outcomes
  readonly strangers: Strangers
  readonly upstream: Upstream
  readonly seen: Map<string, Principal>
  readonly ready: RouteSources['readiness']
  readonly keys: TokenKeys
  readonly logins: Logins
  readonly baseUrls: () => readonly string[]
  readonly registry: Registry
  readonly clientCasChanged: () => Promise<void>
  readonly setup: Setup
}

/** Puts together what one configuration's doors need. */
export function routeSources(parts: Parts): RouteSources {
  const { configuration, house, ledger, outcomes, strangers, upstream, seen } = parts
  const { keys, logins, baseUrls } = parts
  const { database } = house
  const countStranger = (reason: string): void => strangers.count(reason)
  return {
    recorder: audit({ ledger, database, configDigest: configuration.digest, countStranger }),
    settle: (facts, ended) => {
      seen.set(facts.principal.id, facts.principal)
      outcomes.settle(outcomeEntry(facts, outcomeOf(ended, facts.at), configuration.digest))
    },
    strangers: {
      allowed: () => Promise.resolve(null),
      refused: (_facts, { reason }) => {
        countStranger(reason)
        return Promise.resolve(null)
      },
    },
    llm: llmHandler(configuration.llm, upstream),
    models: listModels(configuration.llm, upstream),
    readiness: parts.ready,
    admin: {
      database,
      ledger,
      authority: house.authority,
      organisation: house.settings.org,
      trustDomain: house.settings.trustDomain,
      configuration: () => configuration,
      clientCasChanged: parts.clientCasChanged,
    },
    auth: {
      issue: issueToken({ database, ledger, keys, logins, baseUrls, configDigest: configuration.digest }),
      logins,
      keys,
      baseUrls,
      proofRequired: configuration.dpopMode === 'required',
    },
    setup: parts.setup,
    registry: parts.registry,
  }
}
