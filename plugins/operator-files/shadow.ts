import { type ContentVerdict, contentIn } from '../content/verdict.ts'
import type { CheckVerdict } from '../facts.ts'
import { type Arrival, type CallSettlement, type Plugin, SettlementFaults } from '../plugin.ts'
import { toRefusal } from '../refusal.ts'
import type { CheckFacts, CheckPlugin } from './module.ts'

type ShadowedFacts = Arrival &
  CheckFacts & { readonly shadows?: readonly CheckVerdict[]; readonly shadowFaults?: readonly unknown[] }

/**
 * Asks shadow checks, all at once, after those that judge (docs/rehearsal.md#shadow). Whatever they say, the
 * call goes on; their verdicts are for its row. A call is delayed by the slowest of them, and that by its own
 * deadline. The fault of a failed one is logged, and counted.
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
        ...Object.assign({}, ...asked.map(({ content }) => content && { shadowContent: content })),
      }
    },
    settled: async (facts, settlement) => {
      const faults = [...(facts.shadowFaults ?? []), ...(await settle(checks, facts, settlement))]
      if (faults.length > 0) throw new SettlementFaults(faults)
    },
  }
}

async function verdictOf(check: CheckPlugin, facts: ShadowedFacts): Promise<ShadowVerdict> {
  try {
    const { content }: { readonly content?: ContentVerdict } = await check.admit(facts)
    return { verdict: 'pass', content }
  } catch (error) {
    const refusal = toRefusal(error, 'plugin_failed')
    const content = contentIn(refusal.report)
    if (refusal.reason !== 'plugin_failed') return { verdict: 'refuse', content }
    return { verdict: 'failed', content, fault: faultOf(check, error) }
  }
}

interface ShadowVerdict {
  readonly verdict: CheckVerdict
  readonly content: ContentVerdict | undefined
  readonly fault?: unknown
}

const faultOf = ({ name }: CheckPlugin, cause: unknown): Error =>
  new Error(`the check ${name}, which only watches, failed`, { cause })

/**
 * Settles with the checks that would have let the call through. Resolves to the faults of those that fail.
 */
async function settle(
  checks: readonly CheckPlugin[],
  facts: ShadowedFacts,
  settlement: CallSettlement,
): Promise<readonly Error[]> {
  const passed = checks.filter((_, index) => facts.shadows?.[index] === 'pass')
  const settled = passed.map(async (check) => {
    try {
      await check.settled?.(facts, settlement)
      return []
    } catch (error) {
      return [faultOf(check, error)]
    }
  })
  return (await Promise.all(settled)).flat()
}
