import type { Work } from './writer.ts'

/** A slice of the queue, as its part of all of it. */
const SLICES = 8

/**
 * Returns how many rows may wait, this unit's included, for it to be let into a queue of `limit` rows. Calls fill the
 * queue as fast as they come, so what takes authority away has the last slice to itself, and what waits for nobody,
 * such as the outcomes of calls that are over, the one before it (docs/threats.md#pools). A queue of fewer rows than
 * there are slices keeps nothing.
 */
export function roomFor(unit: Pick<Work, 'statements'> & { readonly lazy?: boolean }, limit: number): number {
  const slice = Math.floor(limit / SLICES)
  if (unit.lazy) return limit - slice
  return changesAuthority(unit) ? limit : limit - 2 * slice
}

/**
 * Tells whether work may change somebody's authority: it may unless each of its statements says by `beside`
 * that it cannot.
 */
export const changesAuthority = ({ statements }: Pick<Work, 'statements'>): boolean =>
  statements.some(({ beside }) => beside === undefined)
