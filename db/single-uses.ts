import type { Database } from './database.ts'
import { type Statement, statementOf, timestamp } from './statement.ts'

/**
 * Claims a thing that may pass once. In a unit of the ledger a second claim is a `duplicate`, whichever
 * replica made the first, and before or after a crash. `expiresAt`: when a copy would be too old anyway, ms
 * since the epoch.
 */
export function claimOnce(database: Database, digest: string, expiresAt: number): Statement {
  return { sql: claimSql(database), parameters: [digest, timestamp(expiresAt)], changes: 1 }
}

const compiled = new WeakMap<Database, string>()

// Compiled once for each database: every call that comes with a proof waits for it.
function claimSql(database: Database): string {
  const known = compiled.get(database)
  if (known !== undefined) return known
  const query = database.kysely.insertInto('single_uses').values({ digest: '', expires_at: '' })
  const { sql } = query.compile()
  compiled.set(database, sql)
  return sql
}

/**
 * Forgets claims that have expired at `at`, the oldest first, no more than `most` of them: every decision
 * waits meanwhile.
 */
export function forgetClaims({ kysely }: Database, at: number, most = 5_000): Statement {
  const expired = kysely
    .selectFrom('single_uses')
    .select('digest')
    .where('expires_at', '<', timestamp(at))
    .orderBy('expires_at')
    .limit(most)
  return statementOf(kysely.deleteFrom('single_uses').where('digest', 'in', expired).compile())
}
