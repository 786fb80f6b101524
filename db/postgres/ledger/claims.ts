import type { Client } from 'pg'
import type { Work } from '../../audit/writer.ts'

/**
 * Makes the claims of units at once, and returns what tells of each unit whether its own went through; one that
 * claims nothing passes. Of two units that claim the same, the first passes. Waits for a transaction of another
 * replica that claims the same.
 */
export async function claimed(client: Client, units: readonly Work[]): Promise<(unit: Work) => boolean> {
  const claimants = new Map<string, readonly [Work, number]>()
  for (const unit of units) {
    for (const { parameters } of unit.statements) {
      // Proven by db/single-uses.ts, which alone makes claims.
      const [digest, expiresAt] = parameters as readonly [string, number]
      if (!claimants.has(digest)) claimants.set(digest, [unit, expiresAt])
    }
  }
  if (claimants.size === 0) return () => true
  // In one order everywhere: two batches that claim alike wait for each other, and neither for ever.
  const digests = [...claimants.keys()].sort()
  const expiries = digests.map((digest) => claimants.get(digest)?.[1] ?? 0)
  const { rows } = await client.query<{ digest: string }>({
    name: 'claims',
    text: CLAIM,
    values: [digests, expiries],
  })
  const made = new Set(rows.map(({ digest }) => digest))
  const passes = (unit: Work): boolean =>
    digestsOf(unit).every((digest) => made.has(digest) && claimants.get(digest)?.[0] === unit)
  // A unit that is refused has claimed nothing.
  const undone = units.filter((unit) => !passes(unit)).flatMap(digestsOf)
  const taken = undone.filter((digest) => made.has(digest) && !passes(claimants.get(digest)?.[0] as Work))
  if (taken.length > 0) await client.query('delete from single_uses where digest = any($1)', [taken])
  return passes
}

const digestsOf = ({ statements }: Work): string[] =>
  statements.map(({ parameters: [digest] }) => String(digest))

const CLAIM = `insert into single_uses (digest, expires_at) select * from unnest($1::text[], $2::bigint[])
on conflict do nothing returning digest`
