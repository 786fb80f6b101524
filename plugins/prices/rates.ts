import { hash } from 'node:crypto'
import {
  FACTOR_KINDS,
  FREE_RATES,
  OTHER_RATE,
  type PriceRates,
  priceIdOf,
} from '../../db/ledger/authority/costs.ts'
import type { JsonObject } from '../../db/support/json.ts'
import { matchesOf, type PricedModel, type PriceOptions, type PriceTable } from './options.ts'

/** Rates that a call may be charged by. */
export interface ModelPrice {
  /** The name of the rates, in rows. */
  readonly id: string
  readonly rates: PriceRates
  /** True: it costs nothing, and somebody has said so. */
  readonly isFree: boolean
  readonly source: PriceSource
  /** The tokens that the model can take at once; null: nobody has said. No part of the rates. */
  readonly window: number | null
}

/** The origin of rates: the operator's own file, the shipped table, or the operator's table. */
export type PriceSource = 'file' | 'builtin' | 'table'

export interface PriceBook {
  /** Finds the price of a model as routed; null: it has none. Compiles it the first time. */
  readonly priceOf: (provider: string, model: string) => ModelPrice | null
  /** Finds the pattern by which {@link PriceBook.priceOf} has found it. */
  readonly entryOf: (provider: string, model: string) => string | null
  /** Finds the price of a call of `<resource>.<tool>`; null: it costs nothing. */
  readonly priceOfTool: (tool: string) => ModelPrice | null
  /** Hex SHA-256 of the table; null: there is none. */
  readonly table: string | null
}

/** A table that was read. */
export interface OpenPriceTable {
  readonly prices: PriceTable
  /** Hex SHA-256 of its bytes. */
  readonly digest: string
  readonly source: Exclude<PriceSource, 'file'>
}

interface BookDependencies {
  readonly table: OpenPriceTable | null
  /** The name by which a table knows a provider. */
  readonly vendorOf: (provider: string) => string
  /** Routing's own: `*` stands for any characters. */
  readonly glob: (pattern: string) => (name: string) => boolean
}

/** A pattern of a table: its price is made when a call first needs it. */
interface PricePattern {
  readonly match: string
  readonly vendor: string
  readonly matches: (name: string) => boolean
  readonly price: () => ModelPrice
}

/** Makes the prices of one configuration. Keeps nothing of what callers name. */
export function priceBook(options: PriceOptions, { table, vendorOf, glob }: BookDependencies): PriceBook {
  const patternsOf = (model: PricedModel, source: PriceSource): readonly PricePattern[] => {
    const price = once(() => modelPrice(model, options.factors, source))
    return matchesOf(model).map((match) => ({ match, vendor: vendorIn(match), matches: glob(match), price }))
  }
  const own = options.models.flatMap((model) => patternsOf(model, 'file'))
  const listed = table ? table.prices.models.flatMap((model) => patternsOf(model, table.source)) : []
  // Most of a table is of other vendors.
  const byVendor = Map.groupBy(listed, ({ vendor }) => vendor)
  const tools = Object.entries(options.tools).map(([match, usd]) => ({
    matches: glob(match),
    price: once(() => namedPrice({ call: picoOf(usd, USE) }, 'file')),
  }))
  const patternOf = (provider: string, model: string): PricePattern | undefined => {
    const vendor = vendorOf(provider)
    const ofVendor = [...(byVendor.get(vendor) ?? []), ...(byVendor.get('') ?? [])]
    return firstFitting(own, `${provider}/${model}`) ?? firstFitting(ofVendor, `${vendor}/${model}`)
  }
  return {
    table: table?.digest ?? null,
    priceOf: (provider, model) => patternOf(provider, model)?.price() ?? null,
    entryOf: (provider, model) => patternOf(provider, model)?.match ?? null,
    priceOfTool: (tool) => firstFitting(tools, tool)?.price() ?? null,
  }
}

const firstFitting = <Pattern extends Pick<PricePattern, 'matches'>>(
  patterns: readonly Pattern[],
  name: string,
): Pattern | undefined => patterns.find(({ matches }) => matches(name))

function once<Value>(make: () => Value): () => Value {
  let made: { readonly value: Value } | null = null
  return () => {
    made ??= { value: make() }
    return made.value
  }
}

/** Returns the vendor that a pattern of a table is about; empty: of several. */
export function vendorIn(match: string): string {
  const [vendor = '', ...rest] = match.split('/')
  return rest.length === 0 || vendor.includes('*') ? '' : vendor
}

const namedPrice = (rates: PriceRates, source: PriceSource, window: number | null = null): ModelPrice => ({
  id: priceIdOf(rates),
  rates,
  isFree: Object.keys(rates).length === 0,
  ...{ source, window },
})

/** Pico-USD of a token, in USD for a million. */
const TOKEN = 1e6
/** Pico-USD of a USD. */
const USE = 1e12
/** Parts per million. */
const FACTOR = 1e6

/** Never rounds a price down to less than it is, but for what binary fractions add. */
const picoOf = (usd: number, unit: number): number => Math.ceil(Number((usd * unit).toPrecision(15)))

function modelPrice(
  { free, above = [], call, search, uses = {}, factors: own = {}, window, ...model }: PricedModel,
  general: PriceOptions['factors'],
  source: PriceSource,
): ModelPrice {
  if (free) return namedPrice(FREE_RATES, source, window ?? null)
  const tokens = ratesIn(model)
  const ofUses = Object.entries({ ...uses, ...(search !== undefined && { web_search: search }) })
  const factors = FACTOR_KINDS.flatMap((kind) => {
    const words = Object.entries(own[kind] ?? general[kind] ?? {})
    return words.length > 0 ? [[kind, inUnit(words, FACTOR)] as const] : []
  })
  return namedPrice(
    {
      ...(tokens.input !== undefined && { tokens }),
      ...(above.length > 0 && {
        above: above.map((tier) => ({ ...ratesIn(tier), input_over: tier.input_over })),
      }),
      ...(call !== undefined && { call: picoOf(call, USE) }),
      ...(ofUses.length > 0 && { uses: inUnit(ofUses, USE) }),
      ...(tokens.input !== undefined && factors.length > 0 && { factors: Object.fromEntries(factors) }),
    },
    source,
    window ?? null,
  )
}

const inUnit = (words: readonly (readonly [string, number])[], unit: number): Record<string, number> =>
  Object.fromEntries(words.map(([word, value]) => [word, picoOf(value, unit)]))

function ratesIn(prices: object): Record<string, number> {
  const known = new Map<string, unknown>(Object.entries(prices))
  return Object.fromEntries(
    ['input', 'output', ...Object.keys(OTHER_RATE)].flatMap((kind) => {
      const usd = known.get(kind)
      return typeof usd === 'number' ? [[kind, picoOf(usd, TOKEN)]] : []
    }),
  )
}

/** Writes the detail of a row that states a price. */
export const statedPrice = (
  { id, rates, source }: ModelPrice,
  {
    provider,
    model,
    table,
  }: { readonly provider: string; readonly model: string | null; readonly table: string | null },
): JsonObject => ({
  ...{ price: id, provider, model, source },
  rates,
  ...(table !== null && { table }),
})

/** Hex SHA-256 of the bytes of a table. */
export const tableDigest = (text: string | Buffer): string => hash('sha256', text)
