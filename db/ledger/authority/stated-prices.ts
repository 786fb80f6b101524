import { isObject, type UnknownRecord } from '../../support/json.ts'
import {
  costOfOutcome,
  type FindRates,
  OTHER_RATE,
  PRICED_WORDS,
  type PriceRates,
  priceIdOf,
  type RecordedCost,
} from './costs.ts'

const TOKEN_KINDS: ReadonlySet<string> = new Set(['input', 'output', ...Object.keys(OTHER_RATE)])

/** Returns why the cost that an outcome says does not follow, as half a sentence, or null. No cost is none. */
export function costFault(detail: UnknownRecord, find: FindRates): string | null {
  const { cost } = detail
  if (cost === undefined) return null
  if (!isRecordedCost(cost)) return 'says a cost that is not formed as one is'
  const { upstream_status: status } = detail
  if (
    cost.priced === 'free' &&
    cost.price === null &&
    detail.tokens !== undefined &&
    !(Number(status) >= 300)
  )
    return 'says that counted tokens were free, and by which rates not'
  if (cost.priced === 'stated' && (cost.estimated || cost.tried || cost.unpriced))
    return 'says a cost that is stated, and is not'
  if (cost.priced === 'reserved')
    return detail.reason === 'crash' && isCharged(detail.limits, cost.microusd)
      ? null
      : 'says a cost that was held, and no limit was charged it'
  const again = costOfOutcome(detail, cost, find)
  if (!again) return 'names rates that no row before it states'
  return again.microusd === cost.microusd
    ? null
    : `says a cost of ${cost.microusd}, but its counts and rates make ${again.microusd}`
}

const isCharged = (limits: unknown, microusd: number): boolean =>
  Array.isArray(limits) && limits.some((one: unknown) => isObject(one) && one.charged === microusd)

const isPriceId = (value: unknown): boolean =>
  value === null || (typeof value === 'string' && /^[0-9a-f]{16}$/.test(value))
const isSafeCount = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0
const isPriceIds = (value: unknown): boolean => Array.isArray(value) && value.every(isPriceId)

function isRecordedCost(value: unknown): value is RecordedCost {
  if (!isObject(value)) return false
  const { microusd, price, priced, estimated, further = [], tried, unpriced = [] } = value
  const isEstimate = isObject(estimated) && isSafeCount(estimated.input) && isSafeCount(estimated.output)
  const isTrial = isObject(tried) && isSafeCount(tried.input) && isPriceIds(tried.prices)
  return (
    isSafeCount(microusd) &&
    isPriceId(price) &&
    PRICED_WORDS.some((word) => word === priced) &&
    (estimated === undefined || isEstimate) &&
    isPriceIds(further) &&
    (tried === undefined || isTrial) &&
    Array.isArray(unpriced)
  )
}

/** Tells rates by their form. Strict: a member of another name or type is a forged one. */
export function isPriceRates(value: unknown): value is PriceRates {
  if (!isObject(value)) return false
  const { tokens, above = [], uses = {}, call = 0, factors = {}, ...odd } = value
  return (
    Object.keys(odd).length === 0 &&
    (tokens === undefined || isTokenRates(tokens)) &&
    Array.isArray(above) &&
    above.every((tier) => isObject(tier) && isSafeCount(tier.input_over) && isTokenRates(tier)) &&
    isRates(uses) &&
    isSafeCount(call) &&
    isObject(factors) &&
    Object.values(factors).every(isRates)
  )
}

const isRates = (value: unknown): boolean => isObject(value) && Object.values(value).every(isSafeCount)

const isTokenRates = (value: unknown): boolean =>
  isRates(value) && Object.keys(value ?? {}).every((name) => TOKEN_KINDS.has(name) || name === 'input_over')

/** Reads the row {@link PRICE_ACTION}: null if it states no rates, or others than it names. */
export function statedPriceIn({
  price,
  rates,
}: UnknownRecord): { readonly price: string; readonly rates: PriceRates } | null {
  if (typeof price !== 'string' || !isPriceRates(rates)) return null
  return priceIdOf(rates) === price ? { price, rates } : null
}
