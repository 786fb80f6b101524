import fc from 'fast-check'

/** What happens in a history, by its frequency. */
const KINDS = [
  ...['create', 'grant', 'grant', 'revoke', 'deactivate', 'reactivate', 'rotate', 'key', 'erase'],
  ...['bind', 'bind', 'unbind', 'demand', 'approve', 'quarantine', 'disable', 'configure'],
  ...[
    'chat',
    'chat',
    'chat',
    'chat',
    'call',
    'call',
    'call',
    'list',
    'invalid',
    'flood',
    'strangers',
    'refused',
    'signed-in',
  ],
  ...['end', 'end', 'end', 'end', 'end', 'crash', 'restart', 'replica', 'seal', 'seal', 'rotate-log'],
] as const

/** One step; `one` and `other` choose whom or what it is about. */
export interface Step {
  readonly kind: (typeof KINDS)[number]
  readonly one: number
  readonly other: number
  readonly yes: boolean
}

/** A history as it is to be played. */
export interface Plan {
  /** Whether there is one stream (SQLite), or one of each start of each replica (PostgreSQL). */
  readonly engine: 'sqlite' | 'postgres'
  /** How many of the first rows are of version 1. */
  readonly old: number
  readonly steps: readonly Step[]
}

const step: fc.Arbitrary<Step> = fc.record({
  kind: fc.constantFrom(...KINDS),
  one: fc.nat(997),
  other: fc.nat(997),
  yes: fc.boolean(),
})

/** Histories of so many steps, by a seed: the same ones for the same seed. */
export const plansOf = (
  seed: number,
  count: number,
  [least, most]: readonly [number, number],
): readonly Plan[] =>
  fc.sample(
    fc.record({
      engine: fc.constantFrom('sqlite' as const, 'postgres' as const),
      old: fc.constantFrom(0, 0, 0, 3),
      steps: fc.array(step, { minLength: least, maxLength: most }),
    }),
    { numRuns: count, seed },
  )
