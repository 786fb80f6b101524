import canonicalize from 'canonicalize'
import { type CallLimit, isRatePeriod, type LimitPeriod, type LimitScope } from '../../limits/limit.ts'
import { isObject } from '../../support/json.ts'
import { isInstant } from '../canonical/instant.ts'

const MEMBERS: ReadonlySet<string> = new Set([
  ...['id', 'name', 'revision', 'for', 'each', 'measure', 'amount', 'per', 'burst', 'strict', 'on', 'show'],
  'override',
])
const LISTS = ['principals', 'types', 'models', 'tools'] as const
const PERIODS: readonly unknown[] = ['second', 'minute', 'hour', 'day', 'week', 'month', 'ever']
const MEASURES: readonly unknown[] = ['cost', 'tokens', 'calls', 'concurrent']

/** Tells the state of a limit, as rows of its changes say it. Strict: a member of another name or type is a forged one. */
export function isLimitState(value: unknown): value is CallLimit {
  if (!isObject(value)) return false
  const { id, name, revision, each, strict, on, show, amount, override, measure, per, burst } = value
  return (
    Object.keys(value).every((member) => MEMBERS.has(member)) &&
    isName(id) &&
    isName(name) &&
    isMeterCount(revision) &&
    revision > 0 &&
    isScope(value.for) &&
    [each, strict, show].every((one) => typeof one === 'boolean') &&
    (on === 'refuse' || on === 'alert') &&
    isMeterCount(amount) &&
    isOverride(override) &&
    isPeriod(measure, per, burst)
  )
}

/** Tells a whole number from 0. */
export const isMeterCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && Number(value) >= 0

const isName = (value: unknown): value is string => typeof value === 'string' && value !== ''

function isScope(value: unknown): value is LimitScope {
  if (!isObject(value)) return false
  const { holding, ...lists } = value
  return (
    (holding === undefined || isName(holding)) &&
    Object.entries(lists).every(
      ([name, list]) => LISTS.some((one) => one === name) && Array.isArray(list) && list.every(isName),
    )
  )
}

function isOverride(value: unknown): boolean {
  if (value === null) return true
  if (!isObject(value)) return false
  const { amount, until, reason, ...odd } = value
  const isUntil = typeof until === 'string' && isInstant(until)
  return isMeterCount(amount) && isUntil && typeof reason === 'string' && Object.keys(odd).length === 0
}

function isPeriod(measure: unknown, per: unknown, burst: unknown): boolean {
  if (!MEASURES.includes(measure)) return false
  if (measure === 'concurrent') return per === undefined && burst === undefined
  if (!PERIODS.includes(per)) return false
  // Proven by the line above.
  const isRate = isRatePeriod(per as LimitPeriod)
  return isRate ? measure !== 'cost' && (burst === undefined || isMeterCount(burst)) : burst === undefined
}

/** Writes the members of a limit that no change may change. */
export const fixedTerms = ({ for: scope, each, measure, per }: CallLimit): string =>
  canonicalize({ for: scope, each, measure, per }) ?? ''

/** Writes all that a state says as one text. */
export const limitText = (limit: CallLimit): string => canonicalize(limit) ?? ''
