import {
  type ComputedCost,
  costOfOutcome,
  type EstimatedTokens,
  type PricedWord,
  type RecordedCost,
} from '../../db/ledger/authority/costs.ts'
import { isObject, type JsonObject, type UnknownRecord } from '../../db/support/json.ts'
import { type ModelPrice, type PriceBook, statedPrice } from './rates.ts'

/** A call that has ended, as its outcome says it. */
export interface EndedCall {
  readonly action: string
  readonly path: string
  /** The model, as the caller wrote it. */
  readonly model: string | null
  readonly tool: string | null
  /** Bytes of the caller's body. */
  readonly inBytes: number
  /** True: the caller took the answer in pieces. */
  readonly isStream: boolean
  readonly status: string
  readonly detail: UnknownRecord
}

export interface CostedCall {
  readonly cost: RecordedCost
  /** The prices that it names, as rows state them. By name. */
  readonly stated: ReadonlyMap<string, JsonObject>
}

/** Says what a call has cost; null: nothing that is priced was asked. Pure, and throws for nothing. */
export type CallPricing = (call: EndedCall) => CostedCall | null

interface PricingDependencies {
  readonly book: PriceBook
  /** Returns the name that a model has at a provider, by the name that a caller wrote; null if it has none there. */
  readonly modelAt: (provider: string, model: string) => string | null
  /** Paths of endpoints for which nobody charges. */
  readonly freePaths: ReadonlySet<string>
}

/** Bytes of a token, of a text and in the events of a stream, whose frames are most of it. */
const TOKEN_BYTES = 4
const STREAMED_TOKEN_BYTES = 32

/** Prices that are kept, by provider and model: more than an organisation has. */
const MAX_KEPT = 1_000

const LLM_ACTION = 'egress_llm_chat'
const TOOL_ACTION = 'mcp_tools_call'

export function callPricing({ book, modelAt, freePaths }: PricingDependencies): CallPricing {
  const kept = new Map<string, ModelPrice | null>()
  const find = (key: string, look: () => ModelPrice | null): ModelPrice | null => {
    const known = kept.get(key)
    if (known !== undefined) return known
    // A caller may name any number of models.
    if (kept.size === MAX_KEPT) kept.clear()
    const found = look()
    kept.set(key, found)
    return found
  }
  const priceAt = (provider: string, model: string): ModelPrice | null =>
    find(`${provider}/${model}`, () => book.priceOf(provider, model))
  const priceOfAsked = (provider: string, asked: string | null): ModelPrice | null =>
    asked === null
      ? null
      : find(`${provider}\n${asked}`, () => {
          const model = modelAt(provider, asked)
          return model === null ? null : priceAt(provider, model)
        })
  const source = { table: book.table, priceAt, priceOfAsked }
  return (call) => {
    if (call.action === LLM_ACTION) return freePaths.has(call.path) ? FREE : new LlmCost(call, source).made()
    if (call.action !== TOOL_ACTION || call.tool === null || !hasRun(call)) return null
    const price = find(`\n${call.tool}`, () => book.priceOfTool(call.tool ?? ''))
    return price && toolCost(price, call.tool, call.detail)
  }
}

const FREE: CostedCall = { cost: { microusd: 0, price: null, priced: 'free' }, stated: new Map() }

/** Tells whether a tool may have worked: one that reports its own failure has. */
const hasRun = ({ status, detail }: EndedCall): boolean => status !== 'error' || detail.isError === true

function toolCost(price: ModelPrice, tool: string, detail: UnknownRecord): CostedCall {
  const cost = { price: price.id }
  const { microusd = 0 } = costOfOutcome(detail, cost, () => price.rates) ?? {}
  const stated = statedPrice(price, { provider: tool, model: null, table: null })
  return { cost: { ...cost, microusd, priced: 'stated' }, stated: new Map([[price.id, stated]]) }
}

interface PriceLookup {
  readonly table: string | null
  readonly priceAt: (provider: string, model: string) => ModelPrice | null
  readonly priceOfAsked: (provider: string, asked: string | null) => ModelPrice | null
}

/** The provider whose answer was passed on. */
interface PassedAnswer {
  readonly provider: string
  readonly price: ModelPrice | null
}

/** Finds out what an LLM call is charged, and by which rates. */
class LlmCost {
  readonly #call: EndedCall
  readonly #prices: PriceLookup
  readonly #used = new Map<string, ModelPrice>()
  readonly #stated = new Map<string, JsonObject>()

  constructor(call: EndedCall, prices: PriceLookup) {
    this.#call = call
    this.#prices = prices
  }

  made(): CostedCall | null {
    const { detail } = this.#call
    const attempts = Array.isArray(detail.attempts) ? detail.attempts.filter(isObject) : []
    if (attempts.length === 0) return null
    const tried = this.#tried(attempts)
    const passed = this.#passed(attempts.at(-1))
    const estimated = passed?.price?.rates.tokens ? this.#estimated() : undefined
    const further = passed ? this.#further(passed) : undefined
    const parts = {
      price: passed?.price?.id ?? null,
      ...(estimated && { estimated }),
      ...(further && { further: further.map(({ id }) => id) }),
      ...(tried && { tried }),
    }
    const sum = costOfOutcome(detail, parts, (id) => this.#used.get(id)?.rates)
    if (!sum) throw new Error('a cost names rates that were not looked up')
    const unpriced = [
      ...sum.unpriced,
      ...(further ?? []).flatMap(({ id, name }) => (id === null ? [`further.${name}`] : [])),
    ]
    const priced = this.#word(passed, { ...sum, unpriced }, parts)
    const cost = { ...parts, microusd: sum.microusd, priced, ...(unpriced.length > 0 && { unpriced }) }
    return { cost, stated: this.#stated }
  }

  #use(price: ModelPrice | null, provider: string, model: string | null): string | null {
    if (!price) return null
    this.#used.set(price.id, price)
    const table = price.source === 'file' ? null : this.#prices.table
    if (!this.#stated.has(price.id))
      this.#stated.set(price.id, statedPrice(price, { provider, model, table }))
    return price.id
  }

  /** Charges what those have read who may have worked, and whose answer nobody got. */
  #tried(attempts: readonly UnknownRecord[]): RecordedCost['tried'] {
    const { model, inBytes } = this.#call
    const charged = attempts.filter(mayHaveWorked).map(({ provider }) => String(provider))
    if (charged.length === 0) return undefined
    const prices = charged.map((provider) =>
      this.#use(this.#prices.priceOfAsked(provider, model), provider, model),
    )
    return { input: Math.ceil(inBytes / TOKEN_BYTES), prices }
  }

  /** Null: no answer was passed on that is billed. */
  #passed(last: UnknownRecord | undefined): PassedAnswer | null {
    if (!last || last.reason !== undefined || !(Number(last.status ?? 300) < 300)) return null
    const provider = String(last.provider)
    const { model } = this.#call
    const price = this.#answeredPrice(provider)
    this.#use(price, provider, model)
    return { provider, price }
  }

  /** If another model than was asked for has answered, its price counts; so it does where that one has none. */
  #answeredPrice(provider: string): ModelPrice | null {
    const { upstream_model: named, model_differs: differs } = this.#call.detail
    const { priceAt, priceOfAsked } = this.#prices
    const answered = (): ModelPrice | null => (typeof named === 'string' ? priceAt(provider, named) : null)
    const asked = priceOfAsked(provider, this.#call.model)
    return differs === true ? (answered() ?? asked) : (asked ?? answered())
  }

  #further({
    provider,
  }: PassedAnswer): readonly { readonly id: string | null; readonly name: string }[] | undefined {
    const { further } = this.#call.detail
    if (!Array.isArray(further)) return undefined
    return further.filter(isObject).map(({ kind, model }) => ({
      name: String(kind),
      id:
        typeof model === 'string' ? this.#use(this.#prices.priceAt(provider, model), provider, model) : null,
    }))
  }

  /** Estimates the counts that were not stated, by bytes; undefined: they were. */
  #estimated(): EstimatedTokens | undefined {
    const { detail, inBytes, isStream } = this.#call
    const { tokens_unknown: why, response_bytes: bytes, server_tools: uses } = detail
    if (why === undefined) return undefined
    const { input, output, total } = isObject(detail.tokens) ? detail.tokens : {}
    const written = Math.ceil(Number(bytes ?? 0) / (isStream ? STREAMED_TOKEN_BYTES : TOKEN_BYTES))
    // Pictures are billed by the picture.
    const isText = !isObject(uses) || uses.images === undefined
    const known = Number(output ?? 0)
    const isOpen = output === undefined ? total === undefined : MAY_BE_MORE.has(why)
    return {
      input: input === undefined && total === undefined ? Math.ceil(inBytes / TOKEN_BYTES) : 0,
      output: isOpen && isText ? Math.max(0, written - known) : 0,
    }
  }

  #word(
    passed: PassedAnswer | null,
    { isExact, unpriced }: ComputedCost,
    { tried, estimated }: Pick<RecordedCost, 'tried' | 'estimated'>,
  ): PricedWord {
    if (!passed) {
      if (!tried) return 'free'
      return tried.prices.includes(null) ? 'unpriced' : 'estimated'
    }
    if (!passed.price) return 'unpriced'
    if (passed.price.isFree && !tried) return 'free'
    if (estimated && this.#call.detail.tokens === undefined) return 'estimated'
    return isExact && unpriced.length === 0 && !estimated && !tried ? 'stated' : 'partly'
  }
}

/** The reasons for which a count that was stated may not be the last. */
const MAY_BE_MORE: ReadonlySet<unknown> = new Set(['cut_off', 'not_numbers', 'too_long'])

/** No connection, and no word of the answer: nobody has worked. */
const IDLE: ReadonlySet<unknown> = new Set([
  ...['provider_unreachable', 'provider_not_configured', 'translation_lossy'],
])

/** Tells of a provider that was left if it may have worked: it gave no status, or that of an answer. */
const mayHaveWorked = ({ reason, status }: UnknownRecord): boolean =>
  reason !== undefined && !IDLE.has(reason) && (status === null || Number(status) < 300)
