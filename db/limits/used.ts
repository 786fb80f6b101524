import { isObject, type UnknownRecord } from '../support/json.ts'
import type { LimitMeasure } from './limit.ts'

/** Returns what an ended call has used in a measure, by the detail of its outcome; null: nobody has said. */
export function usedInOutcome(measure: LimitMeasure, detail: UnknownRecord): number | null {
  if (measure === 'calls') return 1
  if (measure === 'concurrent') return 0
  const unstated = isUntaken(detail) ? 0 : null
  if (measure === 'cost') return isObject(detail.cost) ? wholeNumber(detail.cost.microusd) : unstated
  const { tokens } = detail
  if (!isObject(tokens)) return unstated
  const [input, output] = [wholeNumber(tokens.input), wholeNumber(tokens.output)]
  return input === null && output === null ? null : (input ?? 0) + (output ?? 0)
}

const wholeNumber = (value: unknown): number | null =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : null

/** Tells whether no provider has taken a call on: it has used nothing. */
function isUntaken({ upstream_status: status, attempts, tokens_unknown: unknown }: UnknownRecord): boolean {
  if (typeof status === 'number' && status >= 400) return true
  return unknown === undefined && !(Array.isArray(attempts) && attempts.length > 0)
}
