import type { ListedModel } from './dialects/dialect.ts'
import type { LlmProvider } from './options.ts'
import { hasCredentials } from './upstream/headers.ts'

const MAX_MODELS = 10_000
/** The longest id, and the longest name. Characters. */
const MAX_LENGTH = 256

/** The last list of models of each provider, in memory; of another configuration it is another one. */
export class ModelCatalogue {
  readonly #lists = new WeakMap<LlmProvider, ModelList>()

  of(provider: LlmProvider): ModelList {
    const list = this.#lists.get(provider) ?? new ModelList()
    this.#lists.set(provider, list)
    return list
  }

  carry(from: LlmProvider, to: LlmProvider): void {
    const { firstReading, models } = this.of(from)
    if (firstReading === null) this.of(to).keep(models)
  }
}

interface ListFailure {
  /** ms since the epoch; null: the last reading went well. */
  readonly failingSince: number | null
  readonly problem: string | null
}

const NO_FAILURE: ListFailure = { failingSince: null, problem: null }

export class ModelList {
  #models: readonly ListedModel[] = []
  #ended = false
  #failure: ListFailure = NO_FAILURE
  readonly #first = Promise.withResolvers<void>()

  /** Empty until a reading went well. */
  get models(): readonly ListedModel[] {
    return this.#models
  }

  /** Resolves when the provider was asked for the first time, well or not. Null: that is over. */
  get firstReading(): Promise<void> | null {
    return this.#ended ? null : this.#first.promise
  }

  /** Since when readings fail, and why. */
  get failure(): ListFailure {
    return this.#failure
  }

  /** Ends a reading that went well. Drops ids that are too long, and ids beyond the limit. */
  keep(models: readonly ListedModel[]): void {
    this.#models = models
      .filter(({ id }) => id.length <= MAX_LENGTH)
      .slice(0, MAX_MODELS)
      .map((model) => ({ ...model, name: model.name.slice(0, MAX_LENGTH) }))
    this.#failure = NO_FAILURE
    this.#end()
  }

  /** `outage`: what calls will meet too. Null: only the list is none. */
  fail(outage: { readonly at: number; readonly problem: string } | null): void {
    const { failingSince } = this.#failure
    this.#failure = outage ? { failingSince: failingSince ?? outage.at, problem: outage.problem } : NO_FAILURE
    this.#end()
  }

  #end(): void {
    this.#ended = true
    this.#first.resolve()
  }
}

/** Tells if a provider's list can be read: with its own key, never with one caller's. Vertex has none. */
export const isModelListReadable = (provider: LlmProvider): boolean =>
  provider.auth !== 'passthrough' && provider.api !== 'vertex' && hasCredentials(provider, {})
