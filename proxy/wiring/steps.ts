import type { Database } from '../../db/database.ts'
import { openDatabase } from '../../db/engine.ts'
import { secretUnchanged } from '../../db/operators/secret.ts'
import { sessionStands } from '../../db/operators/sessions.ts'
import { findApiKey } from '../../db/principals/api-keys.ts'
import { authorityUnchanged, pinnedPrincipal } from '../../db/principals/pins.ts'
import { tokenVerifier } from '../../plugins/dpop/access-token.ts'
import { Nonces } from '../../plugins/dpop/dpop.ts'
import { Sessions } from '../../plugins/operators/sessions.ts'
import { pin, stillPinned } from '../../plugins/pin/pin.ts'
import { SubjectKeys } from '../../plugins/pin/subject-keys.ts'
import { RECORDER } from '../../plugins/plugin.ts'
import { adminSecret } from '../../plugins/secrets/admin-secret.ts'
import { apiKey } from '../../plugins/secrets/api-key.ts'
import { beforeFirstSecret } from '../admin/keys/setup.ts'
import { ENDPOINTS } from '../llm/dialects/registry.ts'
import { openRegistry } from '../mcp/state/registry.ts'
import { requestStates } from '../mcp/state/request-state.ts'
import { ServerRequests } from '../mcp/state/server-requests.ts'
import { CallerSessions } from '../mcp/state/sessions.ts'
import { type PipelineSources, pipelines } from '../pipelines.ts'
import type { Configuration } from './configuration.ts'

/** The plugins that a kind of call must pass, by name, in their order. */
export interface Steps {
  /** The kind of call, such as `llm` or `mcp work`. */
  readonly call: string
  readonly names: readonly string[]
}

/**
 * Lists the plugins that LLM and MCP calls must pass under a configuration: the names of the very pipelines
 * that a gateway judges by, and the recorder's where a decision is recorded at their end. Builds the
 * pipelines on an empty database, in memory.
 */
export async function stepsOf(configuration: Configuration): Promise<readonly Steps[]> {
  const database = await openDatabase('sqlite::memory:')
  try {
    const { llm, mcp } = pipelines({ configuration, inForce: () => configuration, ...emptySources(database) })
    // One list for all endpoints: they differ in how they read the call.
    const [llmNames = []] = ENDPOINTS.map((endpoint) => llm(endpoint).names)
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

/** Makes the sources of pipelines that nobody calls: real plugins without a principal. */
export function emptySources(database: Database): Omit<PipelineSources, 'configuration' | 'inForce'> {
  const secret = Buffer.alloc(32)
  const noKey = () => Promise.resolve(undefined)
  const stored = () => Promise.resolve({ hash: '', disabled: true })
  const subjectKeys = new SubjectKeys(database, secret)
  const pinned = pin(pinnedPrincipal(database), subjectKeys)
  return {
    pin: pinned,
    pinNow: pinned,
    again: stillPinned(pinned),
    apiKey: apiKey((keyId) => findApiKey(database, keyId)),
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
    sessions: new Sessions({
      find: () => Promise.resolve(undefined),
      stands: sessionStands(database),
      touch: () => {},
      secret: () => Promise.resolve(null),
      secretUnchanged: secretUnchanged(database),
      environment: '',
      unchanged: authorityUnchanged(database),
      keys: subjectKeys,
      pin: pinned,
      key: secret,
    }),
    adminUrls: () => [],
    metricsToken: null,
    beforeFirstSecret: beforeFirstSecret(stored),
    constrained: {
      nonces: new Nonces(secret),
      baseUrls: () => [],
      tokens: tokenVerifier({ issuer: () => '', audiences: () => [], key: noKey }),
    },
    claims: { database, ledger: { commit: () => Promise.reject(new Error('there is no ledger here')) } },
    mcp: {
      registry: openRegistry(database),
      sessions: new CallerSessions(() => {}),
      serverRequests: new ServerRequests(),
      states: requestStates(secret),
    },
  }
}
