import type { Demand, Granted, Principal, Proof } from './facts.ts'
import type { Plugin } from './plugin.ts'
import { Refusal } from './refusal.ts'

interface Needs {
  readonly principal: Principal
  readonly proof: Proof | null
  readonly demand: Demand
}

/**
 * The gate (spec §1, §2.3): the principal must hold the capability that the request demands, as the database says now.
 * An empty set holds nothing, so it is refused everywhere; there is no other way to a {@link Granted}.
 * Refuses with `capability_missing` and `required_capability`.
 */
export const capability: Plugin<Needs, { granted: Granted }> = {
  name: 'capability',
  needs: ['principal', 'proof'],
  gives: ['granted'],
  admit: ({ principal, demand }) => {
    if (!principal.capabilities.includes(demand.capability)) {
      throw new Refusal('capability_missing', {
        message: `${principal.id} does not hold the capability ${demand.capability}. Ask an operator to grant it.`,
        detail: { required_capability: demand.capability },
      })
    }
    // The one place that makes a Granted: the line above has just proven it.
    return { granted: demand as Granted }
  },
}

/** States what a route asks for, where the route alone decides it. */
export function demand(action: string, capability: string): Plugin<object, { demand: Demand }> {
  const stated = { demand: { action, capability } }
  return { name: 'demand', needs: [], gives: ['demand'], admit: () => stated }
}
