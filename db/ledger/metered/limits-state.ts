import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isLimitState, isMeterCount } from './limit-states.ts'

/** Tells the members of a state that are about limits (docs/ledger.md#state). Both may be absent. */
export const isLimitsState = ({ limits = {}, holds = {} }: UnknownRecord): boolean =>
  valuesOf(limits, isMembers) && valuesOf(holds, (held) => Array.isArray(held) && held.every(isHeld))

const valuesOf = (value: unknown, isOne: (one: unknown) => boolean): boolean =>
  isObject(value) && Object.values(value).every(isOne)

const isTextOrNull = (value: unknown): boolean => value === null || typeof value === 'string'

const isMembers = (value: unknown): boolean =>
  isObject(value) &&
  Array.isArray(value.states) &&
  value.states.length > 0 &&
  value.states.every(isLimitState) &&
  isTextOrNull(value.removed) &&
  isTextOrNull(value.forgotten) &&
  valuesOf(value.meters, (span) => valuesOf(span, isMeter))

const isMeter = (value: unknown): boolean =>
  Array.isArray(value) && value.length === 5 && value.every(isMeterCount)

function isHeld(value: unknown): boolean {
  if (!Array.isArray(value) || value.length !== 5) return false
  const [id, span, who, took, rate]: readonly unknown[] = value
  const isNamed = [id, span, who].every((one) => typeof one === 'string')
  return isNamed && isMeterCount(took) && (rate === null || isMeterCount(rate))
}
