import type { CheckVerdict } from '../facts.ts'
import type { Arrival, CallSettlement, Plugin } from '../plugin.ts'
import { toRefusal } from '../refusal.ts'
import type { CheckFacts, CheckPlugin } from './module.ts'

type ShadowedFacts = Arrival &
  CheckFacts & { readonly shadows?: readonly CheckVerdict[]; readonly shadowFaults?: readonly unknown[] }

/**
 * Asks shadow checks, all at once, after those that judge (docs/rehearsal.md#shadow). Whatever they say,
 * throw or fail to say in their time, the call goes on; their verdicts are for its row. A call is delayed by
 * the slowest of them, and that by its own deadline. The fault of a failed one is one of the settled call:
 * logged, and counted.
 */
export function shadowChecks(checks: readonly CheckPlugin[]): Plugin<ShadowedFacts, object> {
  return {
    name: 'shadow',
    admit: async (facts) => {
      const asked = await Promise.all(checks.map((check) => verdictOf(check, facts)))
      const faults = asked.flatMap(({ fault }) => fault ?? [])
      return {
        shadows: asked.map(({ verdict }) => verdict),
        ...(faults.length > 0 && { shadowFaults: faults }),
      }
    },
    settled: async (facts, settlement) => {
      await settle(checks, facts, settlement)
      for (const fault of facts.shadowFaults ?? []) throw fault
    },
  }
}

async function verdictOf(
  check: CheckPlugin,
  facts: ShadowedFacts,
): Promise<{ readonly verdict: CheckVerdict; readonly fault?: unknown }> {
  try {
    await check.admit(facts)
    return { verdict: 'pass' }
  } catch (error) {
    const failed = toRefusal(error, 'plugin_failed').reason === 'plugin_failed'
    return failed ? { verdict: 'failed', fault: error } : { verdict: 'refuse' }
  }
}

/** Settles with the checks that would have let the call through, as when they judge. */
async function settle(
  checks: readonly CheckPlugin[],
  facts: ShadowedFacts,
  settlement: CallSettlement,
): Promise<void> {
  const passed = checks.filter((_, index) => facts.shadows?.[index] === 'pass')
  await Promise.all(passed.map(async (check) => check.settled?.(facts, settlement)))
}
