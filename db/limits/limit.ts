import type { MeterRefill } from '../ledger/meters/meter-book.ts'
import {
  type BudgetSpan,
  type BudgetWindow,
  budgetSpan,
  STEADY,
  spanName,
  UNDER_WAY,
} from '../ledger/meters/span.ts'
import type { PrincipalType } from '../schema.ts'
import type { JsonObject } from '../support/json.ts'

/** `cost` in micro-USD; `concurrent`: calls that are under way. */
export type LimitMeasure = 'cost' | 'tokens' | 'calls' | 'concurrent'

/** The time that an amount is for: a window of the UTC calendar, or the period of a steady rate. */
export type LimitPeriod = BudgetWindow | RatePeriod

export type RatePeriod = 'second' | 'minute'

/** The calls that a limit is for: all that is stated must fit. Patterns: `*` stands for any characters. */
export interface LimitScope {
  /** Patterns of a principal's id; `acme::*` is an organisation. */
  readonly principals?: readonly string[]
  /** A capability that the principal holds, however its token was narrowed. */
  readonly holding?: string
  readonly types?: readonly PrincipalType[]
  /** Patterns of `provider/model` as routed; one of a call's providers is enough. */
  readonly models?: readonly string[]
  /** Patterns of `resource.tool`. */
  readonly tools?: readonly string[]
}

/** The text of a limit (docs/limits.md). */
export interface LimitTerms {
  readonly for: LimitScope
  /** True: a meter for each principal; false: one for all together. */
  readonly each: boolean
  readonly measure: LimitMeasure
  readonly amount: number
  /** Absent for `concurrent` alone. */
  readonly per?: LimitPeriod
  /** The most at once of a steady rate. Default: the amount. */
  readonly burst?: number
  /** True: the amount is never passed; what may be used at the most is held. */
  readonly strict: boolean
  /** `alert`: it counts, and never refuses. */
  readonly on: 'refuse' | 'alert'
  /** True: its callers may see it. */
  readonly show: boolean
}

/** Another amount until an instant. */
export interface LimitOverride {
  readonly amount: number
  /** RFC 3339. */
  readonly until: string
  readonly reason: string
}

export interface CallLimit extends LimitTerms {
  readonly id: string
  readonly name: string
  readonly revision: number
  readonly override: LimitOverride | null
}

/** Writes the state of a limit, as rows say it (docs/ledger.md#limits). */
export function limitState(limit: CallLimit): JsonObject {
  const { id, name, revision, for: scope, each, measure, amount, per, burst, strict, on, show } = limit
  const state = {
    ...{ id, name, revision, for: scope, each, measure, amount },
    ...(per !== undefined && { per }),
    ...(burst !== undefined && { burst }),
    ...{ strict, on, show, override: limit.override },
  }
  // Proven by their types: texts, truths and whole numbers.
  return state as unknown as JsonObject
}

export const RATE_PERIOD_MS: Readonly<Record<RatePeriod, number>> = { second: 1_000, minute: 60_000 }

/** Tells the periods of steady rates from windows. */
export const isRatePeriod = (per: LimitPeriod | undefined): per is RatePeriod =>
  per === 'second' || per === 'minute'

/** Returns the amount in force at an instant. ms since the epoch. */
export const amountAt = ({ amount, override }: Pick<CallLimit, 'amount' | 'override'>, at: number): number =>
  override && Date.parse(override.until) > at ? override.amount : amount

/** The meter of a limit at an instant, and how it is refilled if it is a steady one. */
export interface LimitMeter {
  readonly span: string
  readonly most: number
  readonly refill?: MeterRefill
}

/** Finds the meter that a call counts in. `at`: its arrival, ms since the epoch. */
export function meterAt(
  limit: Pick<CallLimit, 'amount' | 'burst' | 'override' | 'per'>,
  at: number,
): LimitMeter {
  const amount = amountAt(limit, at)
  const { per, burst } = limit
  if (per === undefined) return { span: UNDER_WAY, most: amount }
  if (!isRatePeriod(per)) return { span: spanName(per, at), most: amount }
  const refill = { rate: amount, periodMs: RATE_PERIOD_MS[per], at }
  return { span: STEADY, most: burst ?? amount, refill }
}

/** Returns the window of a limit at an instant; null: it has no end, or is no window. */
export const limitWindow = ({ per }: Pick<CallLimit, 'per'>, at: number): BudgetSpan | null =>
  per === undefined || isRatePeriod(per) ? null : budgetSpan(per, at)

/** Returns when the window of a limit ends. ms since the epoch; null: it has no end, or is no window. */
export const resetAt = (limit: Pick<CallLimit, 'per'>, at: number): number | null =>
  limitWindow(limit, at)?.until ?? null
