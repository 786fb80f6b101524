import type { Database } from './database.ts'
import { type Statement, statementOf } from './statement.ts'
import { timestamp } from './timestamp.ts'

/**
 * Claims something that may pass once. In a unit of the ledger a second claim is a `duplicate`, whichever replica made
 * the first, and before or after a crash. `expiresAt`: when a copy would be too old anyway, ms since the epoch.
 */
export function claimOnce({ kysely }: Database, digest: string, expiresAt: number): Statement {
  return statementOf(
    kysely
      .insertInto('single_uses')
      .values({ digest, expires_at: timestamp(expiresAt) })
      .compile(),
    1,
  )
}

/** Forgets the claims that have expired at `at`. */
export function forgetClaims({ kysely }: Database, at: number): Statement {
  return statementOf(kysely.deleteFrom('single_uses').where('expires_at', '<', timestamp(at)).compile())
}
