import { isObject, type UnknownRecord } from '../../support/json.ts'

/** The properties that spends are counted by, in the order of the table's key. */
export const SPEND_DIMENSIONS = ['day', 'principal', 'provider', 'model', 'tool'] as const
export type SpendDimension = (typeof SPEND_DIMENSIONS)[number]

export const SPEND_SUMS = [
  ...(['calls', 'input_tokens', 'output_tokens', 'cache_read_tokens', 'cache_write_tokens'] as const),
  ...(['microusd', 'estimated_calls', 'estimated_microusd', 'unpriced_calls'] as const),
]

/**
 * Whole numbers, of calls whose outcome row states a cost. `microusd`: millionths of a US dollar, with what
 * was estimated. `estimated_…`: of calls for which the provider did not state all that costs money.
 */
export type SpendSums = Readonly<Record<(typeof SPEND_SUMS)[number], number>>

/** `principal`: as the ledger names it. The empty text: the row names none. `day`: UTC, such as 2026-11-25. */
export type SpendCount = Readonly<Record<SpendDimension, string>> & SpendSums

/** An outcome row that states a cost. */
export interface CostRow {
  /** The time at which its call was decided, RFC 3339: a call that ends after midnight is of the day before. */
  readonly at: string
  readonly principal: string | null
  readonly provider: string | null
  readonly model: string | null
  readonly tool: string | null
  /** JSON texts of the members of its detail; null: it has none. */
  readonly cost: string | null
  readonly tokens: string | null
}

/** The days that are kept: more than a year, so that a month can be held against that of the year before. */
export const MAX_SPEND_DAYS = 400

/**
 * The models that are counted apart for one principal and day, in one portion and in the table. Callers may
 * choose names: those after are counted together under {@link OTHER_MODELS}.
 */
export const MAX_DAY_MODELS = 256
export const OTHER_MODELS = '(other models)'

/** Counts of a day are by estimates if the provider has not stated what costs money. */
const ESTIMATES: ReadonlySet<unknown> = new Set(['estimated', 'partly', 'reserved'])
const EXACT: ReadonlySet<unknown> = new Set(['stated', 'free'])

/** Sums rows by day, principal, provider, model and tool. */
export function sumSpends(rows: readonly CostRow[]): readonly SpendCount[] {
  const kept = new Map<string, SpendCount>()
  const models = new Map<string, number>()
  for (const row of rows) {
    const one = spendOf(row)
    const key = keyOf(one)
    const own = JSON.stringify([one.day, one.principal])
    const isNew = !kept.has(key)
    if (isNew && (models.get(own) ?? 0) >= MAX_DAY_MODELS) {
      addSpend(kept, { ...one, model: OTHER_MODELS })
      continue
    }
    if (isNew) models.set(own, (models.get(own) ?? 0) + 1)
    addSpend(kept, one)
  }
  return [...kept.values()]
}

const keyOf = (one: SpendCount): string => JSON.stringify(SPEND_DIMENSIONS.map((name) => one[name]))

function addSpend(kept: Map<string, SpendCount>, one: SpendCount): void {
  const key = keyOf(one)
  const before = kept.get(key)
  kept.set(key, before ? { ...before, ...addedSums(before, one) } : one)
}

export function addedSums(one: SpendSums, other: SpendSums): SpendSums {
  // Proven by SPEND_SUMS, which has each name.
  return Object.fromEntries(SPEND_SUMS.map((name) => [name, one[name] + other[name]])) as SpendSums
}

function spendOf({ at, principal, provider, model, tool, cost, tokens }: CostRow): SpendCount {
  const { microusd, priced } = membersOf(cost)
  const counts = membersOf(tokens)
  const spent = wholeNumber(microusd)
  const isEstimate = ESTIMATES.has(priced)
  return {
    day: at.slice(0, 10),
    principal: principal ?? '',
    provider: provider ?? '',
    model: model ?? '',
    tool: tool ?? '',
    calls: 1,
    input_tokens: wholeNumber(counts.input),
    output_tokens: wholeNumber(counts.output),
    cache_read_tokens: wholeNumber(counts.cache_read),
    cache_write_tokens: wholeNumber(counts.cache_write),
    microusd: spent,
    estimated_calls: isEstimate ? 1 : 0,
    estimated_microusd: isEstimate ? spent : 0,
    unpriced_calls: isEstimate || EXACT.has(priced) ? 0 : 1,
  }
}

/** The members of a JSON object; none of any other text. A row that somebody has edited stops no counting. */
function membersOf(text: string | null): UnknownRecord {
  try {
    const value: unknown = text === null ? null : JSON.parse(text)
    return isObject(value) ? value : {}
  } catch (error) {
    if (error instanceof SyntaxError) return {}
    throw error
  }
}

/**
 * The most that one call counts for, of tokens and of micro-USD: a provider that states more than anybody can
 * use must not make a sum that no column can hold.
 */
const MAX_SPEND_PER_CALL = 1_000_000_000_000

const wholeNumber = (value: unknown): number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value > 0
    ? Math.min(value, MAX_SPEND_PER_CALL)
    : 0

export interface SpendQuestion {
  /** At least one, each once. */
  readonly by: readonly SpendDimension[]
  /** Days, both inclusive. */
  readonly from: string
  readonly to: string
  /** Names one principal as the ledger does. Absent: all. */
  readonly principal?: string
  /** `key`: by the properties, ascending; `cost`: the dearest first; `unpriced`: those of calls without a price, the most first. */
  readonly order: 'key' | 'cost' | 'unpriced'
  readonly most: number
  /** The properties of the row before the first, in the order of `by`; for the order `key`. */
  readonly after?: readonly string[]
}

/** The sums of one combination of the asked properties. */
export type SpendGroup = Readonly<Partial<Record<SpendDimension, string>>> & SpendSums

export interface SpendAnswer {
  readonly groups: readonly SpendGroup[]
  /** True: further groups come after the last. */
  readonly more: boolean
  /** The sum of all groups, those of other pages too. */
  readonly total: SpendSums
  /** About how many newer rows of the ledger are not counted yet. */
  readonly uncounted: number
}
