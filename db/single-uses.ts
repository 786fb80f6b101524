import type { Database } from './database.ts'
import { type LedgerStatement, statementOf } from './support/statement.ts'

/** Half of a SHA-256 in hex: nobody finds another proof of the same one. */
const DIGITS = 32

/**
 * Claims a thing that may pass once: a second claim is a `duplicate`, whichever replica made the first.
 * `digest`: SHA-256 in lower-case hex. `expiresAt`: when a copy would be too old, ms since the epoch.
 */
export function claimOnce(database: Database, digest: string, expiresAt: number): LedgerStatement {
  return {
    sql: claimSql(database),
    parameters: [digest.slice(0, DIGITS), expiresAt],
    changes: 1,
    beside: 'claim',
  }
}

const claimSqlCache = new WeakMap<Database, string>()

// Compiled once for each database: every call that comes with a proof waits for it.
function claimSql(database: Database): string {
  const known = claimSqlCache.get(database)
  if (known !== undefined) return known
  const query = database.kysely.insertInto('single_uses').values({ digest: '', expires_at: 0 })
  const { sql } = query.compile()
  claimSqlCache.set(database, sql)
  return sql
}

/** Asks whether a thing was claimed, by the digest that {@link claimOnce} takes. */
export function isClaimed(database: Database): (digest: string) => Promise<boolean> {
  const query = database.kysely.selectFrom('single_uses').select('digest').where('digest', '=', '')
  const lookup = database.lookup(query, 'asked')
  return async (digest) => (await lookup(digest.slice(0, DIGITS))) !== undefined
}

/** All claims lie in so many slices, by the first byte of their digests. */
export const CLAIM_SLICES = 256

/** Finds the slices with expired claims, of `count` slices from one on (from 0). */
export async function expiredSlices(
  { kysely }: Database,
  at: number,
  from: number,
  count: number,
): Promise<readonly number[]> {
  const found = await kysely
    .selectFrom('single_uses')
    .select((eb) => eb.fn<string>('substr', ['digest', eb.lit(1), eb.lit(2)]).as('first'))
    .distinct()
    .where('digest', '>=', firstOf(from))
    .where('digest', '<', afterAll(from + count - 1))
    .where('expires_at', '<', at)
    .execute()
  return found.map(({ first }) => Number.parseInt(first, 16))
}

const firstOf = (slice: number): string => slice.toString(16).padStart(2, '0')
// After every digit.
const afterAll = (slice: number): string => `${firstOf(slice)}g`

/**
 * Forgets at most `most` expired claims of one slice (from 0): every decision waits meanwhile. An index of
 * expiry would cost each claim as much as the claim.
 */
export function forgetClaims({ kysely }: Database, at: number, slice: number, most = 5_000): LedgerStatement {
  const expired = kysely
    .selectFrom('single_uses')
    .select('digest')
    .where('digest', '>=', firstOf(slice))
    .where('digest', '<', afterAll(slice))
    .where('expires_at', '<', at)
    .limit(most)
  const query = kysely.deleteFrom('single_uses').where('digest', 'in', expired)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}
