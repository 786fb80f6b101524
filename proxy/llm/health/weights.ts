import { hash } from 'node:crypto'

interface WeightedProvider {
  readonly provider: { readonly name: string; readonly weight?: number | undefined }
}

/**
 * Orders the providers of a call by their weights: those that have one share the places that they hold in the file,
 * the others stay where they are. The same key gives the same order at every replica, and a provider that joins or
 * leaves moves only the keys of its own share (rendezvous hashing, weighted). `key`: of the conversation.
 */
export function weightedOrder<Target extends WeightedProvider>(
  targets: readonly Target[],
  key: string,
): readonly Target[] {
  const weighted = targets.filter(({ provider }) => provider.weight !== undefined)
  if (weighted.length < 2) return targets
  const scores = new Map(weighted.map((one) => [one, scoreOf(one, key)]))
  const ranked = weighted.toSorted((one, other) => (scores.get(other) ?? 0) - (scores.get(one) ?? 0))
  let next = 0
  return targets.map((one) => {
    if (!scores.has(one)) return one
    const chosen = ranked[next] ?? one
    next += 1
    return chosen
  })
}

/** Draws the score of a provider for a key: the highest of all has a chance in proportion to its weight. */
function scoreOf({ provider: { name, weight = 1 } }: WeightedProvider, key: string): number {
  const digest = hash('sha256', `${name}\n${key}`, 'buffer')
  // 48 bits, and never 0, whose logarithm is infinite.
  return -weight / Math.log((digest.readUIntBE(0, 6) + 0.5) / 2 ** 48)
}
