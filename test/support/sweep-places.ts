import { randomInt } from 'node:crypto'

/** True where a sweep tries every place that it has, and not only some of them. */
export const WHOLE_SWEEP = process.env.TEST_SWEEP === 'full'

/** The number of cases that a property is held against: a tenth, or by TEST_SWEEP=full all. A failure prints its seed. */
export const runsOf = (whole: number): number => (WHOLE_SWEEP ? whole : Math.ceil(whole / 10))

/** The places of a sweep, from the first on without an end: every one of a whole sweep, else one of so many, by chance which. */
export function* sweepPlaces(apart: number): Generator<number> {
  const step = WHOLE_SWEEP ? 1 : apart
  for (let nth = 1 + randomInt(step); ; nth += step) yield nth
}
