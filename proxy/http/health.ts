import { hash, X509Certificate } from 'node:crypto'
import { sql } from 'kysely'
import type { Authority } from '../../certs/authority/authority.ts'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import type { Metrics } from '../telemetry/metrics.ts'
import type { Drain } from './open-calls.ts'
import { json, type Reply } from './reply.ts'

export type Check = 'ok' | 'failed'

/** The results of the checks of `/ready` (docs/protocol.md#readiness). */
export interface Checks {
  readonly database: Check
  readonly audit: Check
  readonly ca: Check
  readonly plugins: Check
  /** There where little is left of the disk. Calls are still served. */
  readonly disk?: 'low'
  /**
   * There while few descriptors are left, or connections find no place. Calls on the connections that are there are still
   * served.
   */
  readonly descriptors?: 'low'
  /** There where an anchor of the ledger has lacked a checkpoint for more than two minutes. Calls are still served. */
  readonly anchors?: 'late'
  /** Present while standard output does not take the log. Calls are still served. */
  readonly log?: 'losing'
}

/** GET /health: 200 as long as the process lives. */
export const health = (): Reply => json(200, { status: 'ok' })

/** GET /ready: 503 as soon as a check fails, or the process is draining. */
export const ready =
  (look: () => Promise<{ draining: boolean; checks: Checks }>) => async (): Promise<Reply> => {
    const { draining, checks } = await look()
    const fit = !draining && !Object.values(checks).includes('failed')
    return json(fit ? 200 : 503, { status: draining ? 'draining' : fit ? 'ready' : 'not_ready', checks })
  }

/** GET /metrics: Prometheus text. */
export const metrics = (registry: Metrics['registry']) => async (): Promise<Reply> => ({
  status: 200,
  headers: { 'content-type': registry.contentType },
  body: await registry.metrics(),
})

/** GET /pki/…: certificates for clients to trust. Public by nature; with an ETag, because clients poll it. */
export const pem =
  (text: () => string) =>
  ({ headers }: Arrival): Reply => {
    const body = text()
    const etag = `"${hash('sha256', body).slice(0, 32)}"`
    if (headers['if-none-match'] === etag) return { status: 304, headers: { etag } }
    return { status: 200, headers: { 'content-type': 'application/x-pem-file', etag }, body }
  }

interface Checked {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'failing'>
  readonly drain: Pick<Drain, 'draining'>
  readonly authority: Authority
  readonly disk: { readonly low: boolean }
  readonly descriptors: { readonly low: boolean }
  readonly anchors: () => Promise<readonly { readonly late: boolean }[]>
  readonly losses: { readonly isLosing: boolean }
  readonly clock: () => number
}

/**
 * Makes the checks that `/ready` answers with. Anybody may ask: whoever asks while they are made gets the same, so that
 * they take one connection to the database (docs/threats.md#h2). `plugins` is always ok: a configuration that does not load
 * never comes into force.
 */
export function readiness({
  database,
  ledger,
  drain,
  authority,
  disk,
  descriptors,
  anchors,
  losses,
  clock,
}: Checked) {
  const caNotAfter = new X509Certificate(authority.intermediatePem).validToDate.getTime()
  return shared(
    async (): Promise<{ draining: boolean; checks: Checks }> => ({
      draining: drain.draining,
      checks: {
        database: (await answers(database)) ? 'ok' : 'failed',
        audit: ledger.failing ? 'failed' : 'ok',
        ca: clock() < caNotAfter ? 'ok' : 'failed',
        plugins: 'ok',
        ...(disk.low && { disk: 'low' }),
        ...(descriptors.low && { descriptors: 'low' }),
        ...((await isLate(anchors)) && { anchors: 'late' }),
        ...(losses.isLosing && { log: 'losing' }),
      },
    }),
  )
}

/** Makes the same work, of which one is under way at once, for all who ask meanwhile. */
function shared<Made>(work: () => Promise<Made>): () => Promise<Made> {
  let underWay: Promise<Made> | null = null
  return () => {
    underWay ??= work().finally(() => {
      underWay = null
    })
    return underWay
  }
}

// Where the database does not answer, that is said already.
const isLate = (anchors: Checked['anchors']): Promise<boolean> =>
  anchors().then(
    (standings) => standings.some(({ late }) => late),
    () => false,
  )

/** Whether the database answers now. On PostgreSQL it may take two seconds to say no. */
export async function answers({ kysely }: Pick<Database, 'kysely'>): Promise<boolean> {
  try {
    await sql`select 1`.execute(kysely)
    return true
  } catch {
    return false
  }
}
