import type { Database } from '../../db/database.ts'
import { openDatabase } from '../../db/engine.ts'
import { PresentRules } from '../../db/limits/present-rules.ts'
import { secretUnchanged } from '../../db/operators/secret.ts'
import { sessionNotEnded } from '../../db/operators/sessions.ts'
import { findApiKey } from '../../db/principals/api-keys.ts'
import { authorityUnchanged, pinnedPrincipal } from '../../db/principals/pins.ts'
import { tokenVerifier } from '../../plugins/dpop/access-token.ts'
import { NonceIssuer } from '../../plugins/dpop/dpop.ts'
import { UsageSamples } from '../../plugins/limits/estimate.ts'
import { KnownFull } from '../../plugins/limits/known-full.ts'
import { BrowserSessions } from '../../plugins/operators/sessions.ts'
import { pin, recheckPin } from '../../plugins/pin/pin.ts'
import { SubjectKeys } from '../../plugins/pin/subject-keys.ts'
import { RECORDER } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { adminSecret } from '../../plugins/secrets/admin-secret.ts'
import { apiKeyCheck } from '../../plugins/secrets/api-key.ts'
import { setupGate } from '../admin/keys/secret.ts'
import { LLM_ENDPOINTS } from '../llm/dialects/registry.ts'
import { ListedUris } from '../mcp/state/listed-uris.ts'
import { openRegistry } from '../mcp/state/registry.ts'
import { requestStates } from '../mcp/state/request-state.ts'
import { ServerRequests } from '../mcp/state/server-requests.ts'
import { CallerSessions } from '../mcp/state/sessions.ts'
import { type PipelineDependencies, pipelines } from '../pipelines.ts'
import type { Configuration } from './configuration.ts'

/** The plugins that a kind of call must pass, by name, in their order. */
export interface PipelineSteps {
  /** The kind of call, such as `llm` or `mcp work`. */
  readonly call: string
  readonly names: readonly string[]
}

/**
 * Lists the plugins that LLM and MCP calls must pass under a configuration: the names of the very pipelines
 * that a gateway judges by, and the recorder's if a decision is recorded at their end. Builds the pipelines
 * on an empty database, in memory.
 */
export async function pipelineSteps(configuration: Configuration): Promise<readonly PipelineSteps[]> {
  const database = await openDatabase('sqlite::memory:')
  try {
    const { llm, mcp } = pipelines({
      configuration,
      inForce: () => configuration,
      ...emptyDependencies(database),
    })
    // One list for all endpoints: they differ in how they read the call.
    const [llmNames = []] = LLM_ENDPOINTS.map((endpoint) => llm.call(endpoint).names)
    return [
      { call: 'llm', names: [...llmNames, RECORDER] },
      { call: 'mcp read', names: mcp.read.names },
      { call: 'mcp handshake', names: mcp.handshake.names },
      { call: 'mcp work', names: [...mcp.work.names, RECORDER] },
    ]
  } finally {
    await database.close()
  }
}

const NO_TOKENS = {
  verify: (): never => {
    throw new Refusal('token_invalid')
  },
}

/** Makes the sources of pipelines that nobody calls: real plugins without a principal. */
export function emptyDependencies(
  database: Database,
): Omit<PipelineDependencies, 'configuration' | 'inForce'> {
  const secret = Buffer.alloc(32)
  const noKey = () => Promise.resolve(undefined)
  const stored = () => Promise.resolve({ hash: '', disabled: true })
  const subjectKeys = new SubjectKeys(database, secret)
  const pinned = pin(pinnedPrincipal(database), subjectKeys)
  return {
    pin: pinned,
    pinNow: pinned,
    again: recheckPin(pinned),
    apiKey: apiKeyCheck((keyId) => findApiKey(database, keyId)),
    operators: {
      secret: adminSecret({
        stored,
        environment: '',
        unchanged: secretUnchanged(database),
        onUse: () => {},
      }),
      lookup: pinnedPrincipal(database),
      unchanged: authorityUnchanged(database),
    },
    people: {
      ...{ urls: () => [], pin: pinned, pinNow: pinned, again: recheckPin(pinned) },
      door: { url: () => '', tokens: NO_TOKENS, nonces: new NonceIssuer(secret) },
    },
    sessions: new BrowserSessions({
      find: () => Promise.resolve(undefined),
      stands: sessionNotEnded(database),
      touch: () => {},
      secret: () => Promise.resolve(null),
      secretUnchanged: secretUnchanged(database),
      environment: '',
      unchanged: authorityUnchanged(database),
      keys: subjectKeys,
      pin: pinned,
      key: secret,
    }),
    states: { known: () => Promise.resolve(new Set()), pausesMs: [] },
    adminUrls: () => [],
    clock: Date.now,
    adminPages: () => [],
    metricsToken: null,
    beforeFirstSecret: setupGate(stored),
    constrained: {
      nonces: new NonceIssuer(secret),
      baseUrls: () => [],
      tokens: tokenVerifier({ issuer: () => '', baseUrls: () => [], key: noKey }),
    },
    limits: { samples: new UsageSamples(), full: new KnownFull() },
    rules: new PresentRules(database),
    claims: { database, ledger: { commit: () => Promise.reject(new Error('there is no ledger here')) } },
    mcp: {
      registry: openRegistry(database),
      sessions: new CallerSessions(() => {}),
      serverRequests: new ServerRequests(),
      listedUris: new ListedUris(),
      states: requestStates(secret),
      accounts: null,
      findAccount: () => Promise.reject(new Error('there are no accounts here')),
    },
  }
}
