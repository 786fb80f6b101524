import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import type { KnownOperator } from './operator.ts'
import type { SignedIn } from './sessions.ts'

/**
 * Finds out whose browser asks for a page: its session alone says so, whatever else it has sent. Refuses with `signed_out`
 * where it has none that holds.
 */
export const signedIn = (
  session: (facts: Arrival) => Promise<SignedIn | null>,
): Plugin<Arrival, KnownOperator> => ({
  name: 'operator',
  admit: async (arrival) => {
    const found = await session(arrival)
    if (!found) throw new Refusal('signed_out')
    return { ...found, proof: null, token: null }
  },
})
