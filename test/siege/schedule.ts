import type { AttackName } from './attacks/attacks.ts'
import type { Random } from './attacks/target.ts'

/** One turn of one attack. Seconds from the beginning of the run. */
export interface Turn {
  readonly attack: AttackName
  readonly from: number
  readonly to: number
}

/** The longest turn. s. */
const TURN_S = 30
/** The longest time without attacks, before the first one and after the last. s. */
const CALM_S = 60

/**
 * Plans the turns of a run: two attacks at a time, each with another beside it, all of them again and again in an order that
 * the random numbers say. A tenth of the run at each end is calm.
 */
export function schedule(attacks: readonly AttackName[], seconds: number, random: Random): readonly Turn[] {
  const calm = Math.min(CALM_S, seconds / 10)
  const length = Math.min(TURN_S, (seconds - 2 * calm) / attacks.length)
  const turns: Turn[] = []
  let from = calm
  for (;;) {
    const order = shuffled(attacks, random)
    for (const [i, attack] of order.entries()) {
      const to = from + length
      // A rounding error is not a turn.
      if (to > seconds - calm + 0.001) return turns
      turns.push({ attack, from, to })
      const beside = order[(i + Math.floor(order.length / 2)) % order.length]
      if (beside !== undefined && beside !== attack) turns.push({ attack: beside, from, to })
      from = to
    }
  }
}

function shuffled<T>(list: readonly T[], random: Random): readonly T[] {
  const drawn = list.map((item) => ({ item, at: random() }))
  return drawn.toSorted((a, b) => a.at - b.at).map(({ item }) => item)
}
