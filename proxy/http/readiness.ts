import { X509Certificate } from 'node:crypto'
import { sql } from 'kysely'
import type { Authority } from '../../certs/authority/authority.ts'
import type { Database } from '../../db/database.ts'
import type { WatchedLedger } from '../watched-ledger.ts'
import type { Drain } from './drain.ts'
import type { Check, Checks } from './health.ts'

interface Sources {
  readonly database: Database
  readonly ledger: WatchedLedger
  readonly drain: Drain
  readonly authority: Authority
  readonly clock: () => number
}

/** What `/ready` answers. `plugins` is always ok: a configuration that does not load never comes into force. */
export function readiness({ database, ledger, drain, authority, clock }: Sources) {
  const caNotAfter = new X509Certificate(authority.intermediatePem).validToDate.getTime()
  return async (): Promise<{ draining: boolean; checks: Checks }> => ({
    draining: drain.draining,
    checks: {
      database: await answers(database),
      audit: ledger.failing ? 'failed' : 'ok',
      ca: clock() < caNotAfter ? 'ok' : 'failed',
      plugins: 'ok',
    },
  })
}

async function answers({ kysely }: Database): Promise<Check> {
  try {
    await sql`select 1`.execute(kysely)
    return 'ok'
  } catch {
    return 'failed'
  }
}
