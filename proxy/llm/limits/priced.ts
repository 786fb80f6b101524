import { costOf, dearestRates } from '../../../db/ledger/authority/costs.ts'
import { compileGlob } from '../../../db/support/glob.ts'
import type { LimitDependencies } from '../../../plugins/limits/limits.ts'
import { type CallPricing, callPricing } from '../../../plugins/prices/cost.ts'
import type { PriceOptions } from '../../../plugins/prices/options.ts'
import {
  type ModelPrice,
  type OpenPriceTable,
  type PriceBook,
  priceBook,
} from '../../../plugins/prices/rates.ts'
import { LLM_ENDPOINTS } from '../dialects/registry.ts'
import type { LlmOptions } from '../options.ts'
import { modelNames, targetsOf } from '../routing.ts'

interface PricedConfiguration {
  readonly prices: { readonly options: PriceOptions; readonly table: OpenPriceTable | null } | null
  readonly llm: LlmOptions
}

/** Makes the prices of a configuration; null: nothing is priced, and no call pays for it. */
function bookOf({ prices, llm }: PricedConfiguration): PriceBook | null {
  if (!prices) return null
  const vendors = new Map(llm.providers.map(({ name, prices_as: vendor = name }) => [name, vendor]))
  const vendorOf = (provider: string): string => vendors.get(provider) ?? provider
  return priceBook(prices.options, { table: prices.table, vendorOf, glob: compileGlob })
}

/** Says what calls that have ended have cost; null: nothing is priced. */
export function pricingOf(configuration: PricedConfiguration): CallPricing | null {
  const book = bookOf(configuration)
  const freePaths = new Set(LLM_ENDPOINTS.flatMap(({ path, isFree }) => (isFree ? [path] : [])))
  return book && callPricing({ book, modelAt: modelNames(configuration.llm), freePaths })
}

/** Finds the prices that calls of a model would be charged by, of each provider that would be tried. */
export function priceFinder(configuration: PricedConfiguration) {
  const book = bookOf(configuration)
  const targets = targetsOf(configuration.llm)
  return (name: string) => ({
    configured: book !== null,
    table: book?.table ?? null,
    prices: targets(name).map(({ provider: { name: provider }, model }) => {
      const found = model === null ? null : (book?.priceOf(provider, model) ?? null)
      return {
        ...{ provider, model },
        price: found?.id ?? null,
        entry: found && model !== null ? (book?.entryOf(provider, model) ?? null) : null,
        ...{ source: found?.source ?? null, free: found?.isFree ?? false, rates: found?.rates ?? null },
        window: found?.window ?? null,
      }
    }),
  })
}

/**
 * Says what a call will cost: of several providers the dearest. A model without a price that must have one is null. Says
 * how much the largest of its models can take, too.
 */
export function callPrices(
  configuration: PricedConfiguration,
): Pick<LimitDependencies, 'costOf' | 'windowOf'> {
  const book = bookOf(configuration)
  const priceOf = (model: string): ModelPrice | null => {
    const slash = model.indexOf('/')
    return book?.priceOf(model.slice(0, slash), model.slice(slash + 1)) ?? null
  }
  const isRefused = configuration.prices?.options.unpriced !== 'allow'
  const costOfCall: LimitDependencies['costOf'] = ({ models, tool, words = {} }, tokens, atMost = false) => {
    if (tool !== null) {
      const price = book?.priceOfTool(tool)
      return price ? costOf(price.rates, {}, tokens).microusd : 0
    }
    const costs = models.map((model) => {
      const price = priceOf(model)
      if (price) return costOf(atMost ? dearestRates(price.rates, words) : price.rates, {}, tokens).microusd
      return isRefused ? null : 0
    })
    return costs.includes(null) ? null : Math.max(0, ...costs.map((cost) => cost ?? 0))
  }
  const windowOf = (models: readonly string[]): number | null => {
    const windows = models.map((model) => priceOf(model)?.window ?? null)
    return windows.includes(null) ? null : Math.max(0, ...windows.map((window) => window ?? 0))
  }
  return { costOf: costOfCall, windowOf }
}
