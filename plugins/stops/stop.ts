import type { CallRules, PresentRules } from '../../db/limits/present-rules.ts'
import { isStopped } from '../../db/stops/stop.ts'
import type { CapabilityDemand, Principal, ReachedResource } from '../facts.ts'
import type { Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'

/** The limits and stops that a call is judged by: all of one state, whose number its record asserts. */
export interface RulesInForce {
  readonly rules: CallRules
}

/** Reads limits and stops as they are now, for the questions after it. */
export function rulesInForce(present: Pick<PresentRules, 'now'>): Plugin<object, RulesInForce> {
  const admit = (): RulesInForce | Promise<RulesInForce> => {
    const rules = present.now()
    return rules instanceof Promise ? rules.then((read) => ({ rules: read })) : { rules }
  }
  return { name: 'rules', admit, still: admit }
}

type StopNeeds = RulesInForce & {
  readonly holder: Principal
  readonly demand: CapabilityDemand
  readonly reached?: ReachedResource | null
}

const admit = ({ rules, holder, demand, reached }: StopNeeds): object => {
  if (rules.stops.length === 0) return NOTHING
  const call = {
    action: demand.action,
    principal: holder.ref,
    type: holder.type,
    resource: reached?.resource.id ?? null,
  }
  const found = rules.stops.find(({ scope }) => isStopped(scope, call))
  if (!found) return NOTHING
  const { id, reason } = found
  throw new Refusal('stopped', {
    message: `Operators have stopped this: ${reason}`,
    detail: { stop: id },
    report: { stop: id },
    final: true,
  })
}

const NOTHING = {}

/** Refuses a call that operators have stopped (docs/stops.md), with `stopped`. Again while it is under way. */
export const notStopped: Plugin<StopNeeds, object> = { name: 'stop', admit, still: admit }
