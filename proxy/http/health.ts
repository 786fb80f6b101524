import { hash, X509Certificate } from 'node:crypto'
import { sql } from 'kysely'
import type { IssuingAuthority } from '../../certs/authority/authority.ts'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import type { GatewayMetrics } from '../telemetry/metrics.ts'
import type { RequestDrain } from './open-calls.ts'
import { jsonReply, type Reply } from './reply.ts'

export type CheckResult = 'ok' | 'failed'

export interface ReadinessChecks {
  readonly database: CheckResult
  readonly audit: CheckResult
  readonly ca: CheckResult
  readonly plugins: CheckResult
  /** Absent if none is configured. Calls are still served, or refused by themselves. */
  readonly providers?: 'ok' | 'degraded' | 'down'
  /** Present while little is left of the disk. Calls are still served. */
  readonly disk?: 'low'
  /** Present while few descriptors are left, or connections find no place. */
  readonly descriptors?: 'low'
  /** Present while an anchor of the ledger has lacked a checkpoint for more than two minutes. */
  readonly anchors?: 'late'
  /** Present while the ledger is sealed no more. Calls are still served. */
  readonly sealing?: 'stopped'
  /** Present while this machine's clock is more than 30 s off the database's. Calls are still served. */
  readonly clock?: 'off'
  /** Present while standard output does not take the log. Calls are still served. */
  readonly log?: 'losing'
}

/** GET /health: 200 as long as the process lives. */
export const healthReply = (): Reply => jsonReply(200, { status: 'ok' })

/** GET /ready: 503 as soon as a check fails, or the process is draining. */
export const readinessReply =
  (look: () => Promise<{ draining: boolean; checks: ReadinessChecks }>) => async (): Promise<Reply> => {
    const { draining, checks } = await look()
    const fit = !draining && !Object.values(checks).includes('failed')
    return jsonReply(fit ? 200 : 503, { status: draining ? 'draining' : fit ? 'ready' : 'not_ready', checks })
  }

export const metricsReply = (registry: GatewayMetrics['registry']) => async (): Promise<Reply> => ({
  status: 200,
  headers: { 'content-type': registry.contentType },
  body: await registry.metrics(),
})

/** GET /pki/…: certificates for clients to trust, with an ETag, because clients poll it. */
export const pemReply =
  (text: () => string) =>
  ({ headers }: Arrival): Reply => {
    const body = text()
    const etag = `"${hash('sha256', body).slice(0, 32)}"`
    if (isNoneMatched(headers['if-none-match'], etag)) return { status: 304, headers: { etag } }
    return { status: 200, headers: { 'content-type': 'application/x-pem-file', etag }, body }
  }

/** Tells whether If-None-Match names an ETag: by weak comparison, in a list or as `*` (RFC 9110 §13.1.2). */
const isNoneMatched = (given: string | undefined, etag: string): boolean =>
  given?.split(',').some((one) => one.trim() === '*' || one.trim().replace(/^W\//, '') === etag) === true

interface ReadinessDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'failing'>
  readonly drain: Pick<RequestDrain, 'draining'>
  readonly authority: IssuingAuthority
  /** Null: none is configured. */
  readonly providers: () => 'ok' | 'degraded' | 'down' | null
  readonly disk: { readonly low: boolean }
  readonly descriptors: { readonly low: boolean }
  readonly anchors: () => Promise<readonly { readonly late: boolean }[]>
  readonly sealing: { readonly stopped: boolean }
  readonly clockWatch: { readonly offS: number }
  readonly losses: { readonly isLosing: boolean }
  readonly clock: () => number
}

/**
 * Makes the checks that `/ready` answers with. All who ask meanwhile get the same result
 * (docs/threats.md#h2). `plugins` is always ok: a configuration that does not load never comes into force.
 */
export function readinessProbe({
  database,
  ledger,
  drain,
  authority,
  providers,
  disk,
  descriptors,
  anchors,
  sealing,
  clockWatch,
  losses,
  clock,
}: ReadinessDependencies) {
  const caNotAfter = new X509Certificate(authority.intermediatePem).validToDate.getTime()
  return shareRunningWork(
    async (): Promise<{ draining: boolean; checks: ReadinessChecks }> => ({
      draining: drain.draining,
      checks: {
        database: (await isDatabaseReachable(database)) ? 'ok' : 'failed',
        audit: ledger.failing ? 'failed' : 'ok',
        ca: clock() < caNotAfter ? 'ok' : 'failed',
        plugins: 'ok',
        ...maybeProviders(providers()),
        ...(disk.low && { disk: 'low' }),
        ...(descriptors.low && { descriptors: 'low' }),
        ...((await isLate(anchors)) && { anchors: 'late' }),
        ...(sealing.stopped && { sealing: 'stopped' }),
        ...(clockWatch.offS !== 0 && { clock: 'off' }),
        ...(losses.isLosing && { log: 'losing' }),
      },
    }),
  )
}

const maybeProviders = (
  providers: ReadinessChecks['providers'] | null,
): Pick<ReadinessChecks, 'providers'> => (providers ? { providers } : {})

/** Makes one work at a time, for all who ask meanwhile. */
function shareRunningWork<Made>(work: () => Promise<Made>): () => Promise<Made> {
  let underWay: Promise<Made> | null = null
  return () => {
    underWay ??= work().finally(() => {
      underWay = null
    })
    return underWay
  }
}

// If the database does not answer, that is said already.
const isLate = (anchors: ReadinessDependencies['anchors']): Promise<boolean> =>
  anchors().then(
    (standings) => standings.some(({ late }) => late),
    () => false,
  )

/** True if the database answers now. On PostgreSQL it may take two seconds to say no. */
export async function isDatabaseReachable({ kysely }: Pick<Database, 'kysely'>): Promise<boolean> {
  try {
    await sql`select 1`.execute(kysely)
    return true
  } catch {
    return false
  }
}
