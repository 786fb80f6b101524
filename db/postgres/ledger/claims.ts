import type { Client } from 'pg'
import type { LedgerWork } from '../../ledger/record/writer.ts'

/** Returns the digests that are claimed. Waits for a transaction of another replica that claims the same. */
export async function insertClaims(
  client: Client,
  units: readonly LedgerWork[],
): Promise<ReadonlySet<string>> {
  const expiries = new Map<string, number>()
  for (const { statements } of units) {
    for (const { parameters } of statements) {
      // Proven by db/single-uses.ts, which alone makes claims.
      const [digest, expiresAt] = parameters as readonly [string, number]
      if (!expiries.has(digest)) expiries.set(digest, expiresAt)
    }
  }
  if (expiries.size === 0) return new Set()
  // One order everywhere: two batches that claim alike wait for each other, and neither for ever.
  const digests = [...expiries.keys()].sort()
  const values = [digests, digests.map((digest) => expiries.get(digest) ?? 0)]
  const { rows } = await client.query<{ digest: string }>({ name: 'claims', text: CLAIM, values })
  return new Set(rows.map(({ digest }) => digest))
}

const CLAIM = `insert into single_uses (digest, expires_at) select * from unnest($1::text[], $2::bigint[])
on conflict do nothing returning digest`

/** Gives the claims that are made to units: of two that claim the same the first one has it. */
export class ClaimAllocator {
  readonly #left: Set<string>

  constructor(made: ReadonlySet<string>) {
    this.#left = new Set(made)
  }

  /** Takes all that a unit claims, or nothing. Returns whether it did; a unit that claims nothing does. */
  take({ statements }: LedgerWork): boolean {
    const digests = statements.map(({ parameters: [digest] }) => String(digest))
    if (!digests.every((digest) => this.#left.has(digest))) return false
    for (const digest of digests) this.#left.delete(digest)
    return true
  }

  /** Claims that no unit took: a refused unit has claimed nothing. */
  get left(): readonly string[] {
    return [...this.#left]
  }
}

export async function deleteClaims(client: Client, digests: readonly string[]): Promise<void> {
  if (digests.length > 0) await client.query(deleteClaimsQuery(digests))
}

export const deleteClaimsQuery = (digests: readonly string[]) => ({
  text: 'delete from single_uses where digest = any($1)',
  values: [digests],
})

/** The digests that a unit claims. */
export const claimDigestsOf = ({ statements }: LedgerWork): readonly string[] =>
  statements.filter(({ beside }) => beside === 'claim').map(({ parameters: [digest] }) => String(digest))
