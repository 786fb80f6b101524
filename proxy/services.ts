import { countQuarantinedTools, countUnreadableResources } from '../db/mcp/counts.ts'
import { findApiKey } from '../db/principals/api-keys.ts'
import { pinnedPrincipal } from '../db/principals/pins.ts'
import { readSetting } from '../db/settings.ts'
import { AnonymousRefusals } from '../plugins/audit/anonymous.ts'
import { Outcomes } from '../plugins/audit/outcomes.ts'
import { tokenVerifier } from '../plugins/dpop/access-token.ts'
import { Nonces } from '../plugins/dpop/nonce.ts'
import type { Principal } from '../plugins/facts.ts'
import type { Environment } from '../plugins/operator-files/expand.ts'
import { pin } from '../plugins/pin/pin.ts'
import { spiffePin } from '../plugins/pin/spiffe.ts'
import { adminSecret } from '../plugins/secrets/admin-secret.ts'
import { apiKey } from '../plugins/secrets/api-key.ts'
import { Setup } from './admin/setup.ts'
import { Logins } from './auth/login-challenge.ts'
import { resourcesOf } from './auth/metadata.ts'
import { openNonceSecret } from './auth/nonces.ts'
import { openTokenKeys } from './auth/token-keys.ts'
import type { DataDirectory } from './data-directory.ts'
import { Drain } from './http/drain.ts'
import type { Listeners } from './http/listeners.ts'
import { readiness } from './http/readiness.ts'
import { openUpstream } from './llm/upstream/client.ts'
import { openMcp } from './mcp/mcp.ts'
import { renewCertificate } from './tasks/renew-server-certificate.ts'
import type { Logs } from './telemetry/log.ts'
import { createMetrics } from './telemetry/metrics.ts'
import { watched } from './watched-ledger.ts'

/** Everything that lives as long as the process, whichever configuration is in force. */
export type Services = Awaited<ReturnType<typeof openServices>>

/** Puts it together on an open house. What it holds open, `house.close`, `upstream.close` and `mcp.close` close. */
export async function openServices(
  dataDirectory: DataDirectory,
  logs: Logs,
  clock: () => number,
  env: Environment,
) {
  const { settings, database, authority, passphrase } = dataDirectory
  const ledger = watched(dataDirectory.ledger)
  const outcomes = new Outcomes(ledger, (error) => logs.log.error({ err: error }, 'an outcome row was lost'))
  const drain = new Drain()
  // Set once the listeners are open: a port may be known only then, so URLs are asked for when they are needed.
  const doors: { listeners: Listeners | null } = { listeners: null }
  const baseUrls = (): readonly string[] => settings.publicUrls ?? doors.listeners?.baseUrls ?? []
  const issuer = (): string => baseUrls()[0] ?? ''
  const keys = await openTokenKeys({ database, ledger, passphrase, clock })
  const nonceSecret = await openNonceSecret(database, ledger, clock())
  const storedHash = async (): Promise<string> => (await readSetting(database, 'admin_secret_hash')) ?? ''

  return {
    dataDirectory,
    logs,
    clock,
    ledger,
    outcomes,
    drain,
    doors,
    baseUrls,
    issuer,
    keys,
    anonymous: new AnonymousRefusals(clock()),
    /** Principals that were served since it was last written down. */
    seen: new Map<string, Principal>(),
    upstream: openUpstream(),
    mcp: openMcp({
      database,
      env,
      dataDir: settings.dataDir,
      allowPrivate: settings.allowPrivateUpstreams,
      secret: nonceSecret,
      clock,
    }),
    metrics: createMetrics({
      waiting: () => ledger.waiting,
      owed: () => outcomes.owed,
      quarantined: () => countQuarantinedTools(database),
      unreadable: () => countUnreadableResources(database),
    }),
    ready: readiness({ database, ledger, drain, authority, clock }),
    setup: new Setup(),
    logins: new Logins(nonceSecret),
    hasAdminSecret: async () => settings.adminSecret !== null || (await storedHash()) !== '',
    clientCasChanged: () => renewCertificate(dataDirectory, doors.listeners, clock).run(),
    /** Plugins that remember something, and so are made once. */
    plugins: {
      adminSecret: adminSecret({ storedHash, environment: settings.adminSecret ?? '' }),
      pin: pin(pinnedPrincipal(database), spiffePin(database)),
      apiKey: apiKey((keyId) => findApiKey(database, keyId)),
      constrained: {
        nonces: new Nonces(nonceSecret),
        baseUrls,
        tokens: tokenVerifier({ issuer, audiences: () => resourcesOf(baseUrls()), key: keys.verifier }),
      },
      claims: { ledger, database },
    },
  }
}
