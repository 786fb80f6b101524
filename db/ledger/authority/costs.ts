import { hash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { isObject, type UnknownRecord } from '../../support/json.ts'

type RateNames = Readonly<Record<string, number>>

/** The rates that a cost is made of, as rows state them. Pico-USD: of a token, a use, a call. */
export type PriceRates = {
  /** Rates by the kind of token; absent: tokens cost nothing. A kind that is absent costs what {@link OTHER_RATE} says. */
  readonly tokens?: RateNames
  /** Rates of calls whose input is longer than `input_over`, ascending. */
  readonly above?: readonly RateNames[]
  /** The rate of a use of a tool that the provider runs, by tool; `web_search` is one. */
  readonly uses?: RateNames
  /** The rate of a call. */
  readonly call?: number
  /** Parts per million, by the words of `service_tier`, `speed` and `geo`. Of tokens alone. */
  readonly factors?: Readonly<Record<string, RateNames>>
}

/** The members of an outcome's detail that are billed. */
export interface BilledUsage {
  readonly tokens?: unknown
  readonly searches?: unknown
  readonly server_tools?: unknown
  readonly service_tier?: unknown
  readonly speed?: unknown
  readonly geo?: unknown
}

/** Tokens that nobody has stated, in addition to those that somebody has. */
export type EstimatedTokens = { readonly input: number; readonly output: number }

/** The member `cost` of an outcome (docs/ledger.md#cost). */
export type RecordedCost = {
  readonly microusd: number
  /** The rates of the answer's own tokens; null: it costs nothing, or nobody knows what. */
  readonly price: string | null
  readonly priced: PricedWord
  readonly estimated?: EstimatedTokens
  /** The rates of each of `further`. */
  readonly further?: readonly (string | null)[]
  /** Providers that were asked before, or in vain, and may have worked: the tokens that each has read. */
  readonly tried?: { readonly input: number; readonly prices: readonly (string | null)[] }
  /** The parts that are billed and have no rate, by name. */
  readonly unpriced?: readonly string[]
}

export const PRICED_WORDS = ['stated', 'estimated', 'partly', 'reserved', 'free', 'unpriced'] as const
export type PricedWord = (typeof PRICED_WORDS)[number]

export interface ComputedCost {
  /** Whole micro-USD, rounded up; 2^53 − 1 stands for more. */
  readonly microusd: number
  /** False: counts contradict each other, and were cut to what fits. */
  readonly isExact: boolean
  readonly unpriced: readonly string[]
}

/** A sum before it is rounded: pico-USD × 10^18, so that three factors divide nothing. */
interface CostSum {
  readonly sum: bigint
  readonly isExact: boolean
  readonly unpriced: readonly string[]
}

/** The action of a row that states rates, before or with the first outcome that names them. */
export const PRICE_ACTION = 'price.stated'

/** The rate of a kind that has none of its own. */
export const OTHER_RATE: Readonly<Record<string, string>> = {
  cached: 'input',
  cache_write: 'input',
  cache_write_5m: 'cache_write',
  cache_write_30m: 'cache_write',
  cache_write_1h: 'cache_write',
  cache_write_12h: 'cache_write',
  input_audio: 'input',
  input_image: 'input',
  output_audio: 'output',
  output_image: 'output',
}

const LIFETIMES = ['cache_write_12h', 'cache_write_1h', 'cache_write_30m', 'cache_write_5m'] as const
export const FACTOR_KINDS = ['service_tier', 'speed', 'geo'] as const

/** Words that name the usual price. Others without a factor are named as unpriced. */
const USUAL_WORDS: ReadonlySet<unknown> = new Set([
  ...['default', 'standard', 'auto', 'on_demand', 'global', 'not_available', 'scale'],
])

const MILLION = 1_000_000n
/** One, as the product of three factors. */
const UNIT_FACTOR = MILLION ** 3n
/** The units of a {@link CostSum} in a micro-USD. */
const PER_MICROUSD = MILLION * UNIT_FACTOR
const MAX_MICROUSD = BigInt(Number.MAX_SAFE_INTEGER)

/** Returns the name of rates: 16 hex digits. */
export const priceIdOf = (rates: PriceRates): string =>
  hash('sha256', canonicalize(rates) ?? '', 'hex').slice(0, 16)

/**
 * Computes what usage costs: each part at its rate, those of tokens times the factors. Pure, and throws for nothing:
 * a count that is none counts as 0, one that does not fit is cut, and both make it inexact.
 */
export const costOf = (rates: PriceRates, usage: BilledUsage, estimated?: EstimatedTokens): ComputedCost =>
  computed(sumOf(rates, usage, estimated))

const computed = ({ sum, isExact, unpriced }: CostSum): ComputedCost => {
  const microusd = (sum + PER_MICROUSD - 1n) / PER_MICROUSD
  return { microusd: Number(lesser(microusd, MAX_MICROUSD)), isExact, unpriced }
}

const lesser = (one: bigint, other: bigint): bigint => (one < other ? one : other)

const INPUT_KINDS = ['input', ...Object.keys(OTHER_RATE).filter((kind) => !kind.startsWith('output_'))]
const OUTPUT_KINDS = ['output', 'output_audio', 'output_image']

/**
 * Returns the rates at which a call costs the most: each token at the dearest of its way, in whatever tier. `words`: what
 * the call asks for; a word without a factor counts as the dearest, none as the usual.
 */
export function dearestRates(
  { tokens, above = [], call, factors = {} }: PriceRates,
  words: Readonly<Record<string, unknown>>,
): PriceRates {
  if (!tokens) return call === undefined ? {} : { call }
  const factor = FACTOR_KINDS.reduce((product, kind) => {
    const known = factors[kind] ?? {}
    const word = words[kind] ?? null
    if (word === null) return product
    const own = typeof word === 'string' && Object.hasOwn(known, word) ? known[word] : undefined
    return (product * Math.max(1e6, own ?? Math.max(0, ...Object.values(known)))) / 1e6
  }, 1)
  const dearest = (kinds: readonly string[]): number =>
    Math.ceil(
      factor * Math.max(...[tokens, ...above].flatMap((tier) => kinds.map((kind) => tier[kind] ?? 0))),
    )
  return {
    tokens: { input: dearest(INPUT_KINDS), output: dearest(OUTPUT_KINDS) },
    ...(call !== undefined && { call }),
  }
}

/** The rates of what costs nothing. */
export const FREE_RATES: PriceRates = {}

const NOTHING: CostSum = { sum: 0n, isExact: true, unpriced: [] }
const NO_TOKENS: EstimatedTokens = { input: 0, output: 0 }

function sumOf(rates: PriceRates, usage: BilledUsage, estimated = NO_TOKENS): CostSum {
  if (rates === FREE_RATES || Object.keys(rates).length === 0) return NOTHING
  const unpriced: string[] = []
  const uses = usesSum(rates, usage, unpriced)
  const { tokens, call = 0 } = rates
  const fixed = uses + BigInt(call) * UNIT_FACTOR
  if (!tokens) return { sum: fixed, isExact: true, unpriced }
  const split = new TokenSplit(isObject(usage.tokens) ? usage.tokens : {}, estimated)
  const tier = rates.above?.findLast(({ input_over: over = 0 }) => split.read > BigInt(over)) ?? tokens
  let sum = 0n
  for (const [kind, count] of split.parts) sum += count * BigInt(rateIn(tier, kind))
  return { sum: sum * factorOf(rates, usage, unpriced) + fixed, isExact: split.isExact, unpriced }
}

function rateIn(rates: RateNames, kind: string): number {
  const other = OTHER_RATE[kind]
  return rates[kind] ?? (other === undefined ? 0 : rateIn(rates, other))
}

function usesSum({ uses = {} }: PriceRates, usage: BilledUsage, unpriced: string[]): bigint {
  if (usage.searches === undefined && usage.server_tools === undefined) return 0n
  const tools = isObject(usage.server_tools) ? Object.entries(usage.server_tools) : []
  let sum = 0n
  for (const [tool, stated] of [['web_search', usage.searches] as const, ...tools]) {
    const count = countOf(stated)
    const rate = Object.hasOwn(uses, tool) ? uses[tool] : undefined
    if (rate !== undefined) sum += count * BigInt(rate)
    else if (count > 0n) unpriced.push(tool === 'web_search' ? 'searches' : `server_tools.${tool}`)
  }
  return sum * UNIT_FACTOR
}

function factorOf({ factors = {} }: PriceRates, usage: BilledUsage, unpriced: string[]): bigint {
  let product = 1n
  for (const kind of FACTOR_KINDS) {
    const word = usage[kind]
    const known = factors[kind] ?? {}
    const factor = typeof word === 'string' && Object.hasOwn(known, word) ? known[word] : undefined
    product *= factor === undefined ? MILLION : BigInt(factor)
    if (word !== undefined && factor === undefined && !USUAL_WORDS.has(word)) unpriced.push(kind)
  }
  return product
}

/** Tokens by the rate that each is billed at. */
class TokenSplit {
  readonly parts: (readonly [kind: string, count: bigint])[] = []
  /** All that was read. */
  readonly read: bigint
  isExact = true

  constructor(tokens: UnknownRecord, estimated: EstimatedTokens) {
    const [input, output] = [this.#count(tokens.input), this.#count(tokens.output)]
    const beyond = this.#count(tokens.total) - input - output
    const rest = beyond > 0n ? beyond : 0n
    // Those who leave reasoning out of the output count it in the total.
    const [restRead, restWritten] = tokens.input === undefined ? [rest, 0n] : [0n, rest]
    this.read = input + restRead + countOf(estimated.input)
    this.#splitInput(tokens, this.read)
    let left = output + restWritten + countOf(estimated.output)
    for (const kind of ['output_audio', 'output_image'] as const)
      left = this.#take(kind, this.#count(tokens[kind]), left)
    this.#add('output', left)
  }

  #splitInput(tokens: UnknownRecord, read: bigint): void {
    let left = this.#take('cached', this.#count(tokens.cache_read), read)
    let writes = this.#count(tokens.cache_write)
    for (const kind of LIFETIMES) {
      const count = this.#count(tokens[kind])
      writes -= count
      left = this.#take(kind, count, left)
    }
    if (writes > 0n) left = this.#take('cache_write', writes, left)
    for (const kind of ['input_audio', 'input_image'] as const) {
      // Some of it may have come from the cache, and is counted there.
      const taken = lesser(this.#count(tokens[kind]), left)
      this.#add(kind, taken)
      left -= taken
    }
    this.#add('input', left)
  }

  /** Returns what is left of the whole. */
  #take(kind: string, count: bigint, left: bigint): bigint {
    if (count > left) this.isExact = false
    const taken = lesser(count, left)
    this.#add(kind, taken)
    return left - taken
  }

  #add(kind: string, count: bigint): void {
    if (count > 0n) this.parts.push([kind, count])
  }

  #count(stated: unknown): bigint {
    if (stated !== undefined && !isWhole(stated)) this.isExact = false
    return countOf(stated)
  }
}

/** Tells a count: a whole number from 0. */
const isWhole = (value: unknown): value is number => Number.isInteger(value) && Number(value) >= 0
const countOf = (value: unknown): bigint => (isWhole(value) ? BigInt(value) : 0n)

/** Finds rates by their name. */
export type FindRates = (price: string) => PriceRates | undefined

/**
 * Computes the cost of an outcome again, from its own counts and the rates that its `cost` names. Null: it names some
 * that are not known.
 */
export function costOfOutcome(
  detail: UnknownRecord,
  { price, estimated, further = [], tried }: Omit<RecordedCost, 'microusd' | 'priced'>,
  find: FindRates,
): ComputedCost | null {
  const { service_tier, speed, geo } = detail
  const others = Array.isArray(detail.further) ? detail.further : []
  const sums: CostSum[] = []
  const add = (id: string | null, usage: BilledUsage, rest?: EstimatedTokens): boolean => {
    const rates = id === null ? FREE_RATES : find(id)
    if (rates && id !== null) sums.push(sumOf(rates, usage, rest))
    return rates !== undefined
  }
  const isKnown = [
    add(price, detail, estimated),
    ...further.map((id, at) => {
      const one: unknown = others[at]
      return add(id, { tokens: isObject(one) ? one.tokens : undefined, service_tier, speed, geo })
    }),
    ...(tried?.prices ?? []).map((id) => add(id, {}, { input: tried?.input ?? 0, output: 0 })),
  ]
  if (isKnown.includes(false)) return null
  return computed({
    sum: sums.reduce((all, { sum }) => all + sum, 0n),
    isExact: sums.every(({ isExact }) => isExact),
    unpriced: [...new Set(sums.flatMap(({ unpriced }) => unpriced))],
  })
}
