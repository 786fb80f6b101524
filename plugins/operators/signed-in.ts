import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { assertSameDoor, type KnownOperator, type SessionQuestion } from './operator.ts'

/** Finds out whose browser asks for a page: only its session says so. Refuses with `signed_out`. */
export const requireSession = ({ first, again }: SessionQuestion): Plugin<Arrival, KnownOperator> => {
  const held = (found: KnownOperator | null): KnownOperator => {
    if (!found) throw new Refusal('signed_out')
    return found
  }
  return {
    name: 'operator',
    admit: async (arrival) => held(await first(arrival)),
    still: async (facts) => assertSameDoor(facts, held(await again(facts))),
  }
}
