import { isDeepStrictEqual } from 'node:util'
import type { Logger } from 'pino'
import { messageOf } from '../../db/support/error-message.ts'
import { OWN_AUTHORITY } from '../../plugins/call-authority.ts'
import type { CatalogPermit } from '../../plugins/permit.ts'
import { isModelListReadable, type ModelCatalogue } from '../llm/catalogue.ts'
import type { LlmProvider } from '../llm/options.ts'
import type { LlmUpstream } from '../llm/upstream/client.ts'
import { readModelList } from '../llm/upstream/model-list.ts'
import { type RoundsTask, rounds } from './rounds.ts'

interface ModelRefreshDependencies {
  readonly catalogue: ModelCatalogue
  readonly upstream: LlmUpstream
  readonly providers: () => readonly LlmProvider[]
  readonly clock: () => number
  readonly log: Logger
}

/** The time between two readings of a list. ms. */
const INTERVAL_MS = 300_000
/** The wait after the first failure; each further one doubles it, up to {@link INTERVAL_MS}. ms. */
const RETRY_MS = 30_000
const MAX_READ_MS = 10_000
/** The number of providers that are read at once: each list may be 4 MiB. */
const AT_ONCE = 8

/**
 * Reads each provider's list of models into the catalogue: at the start, after a change of its configuration,
 * then every 5 minutes. `run` is one round: it resolves when all that was due has begun. Does NOT read from
 * providers that take callers' own keys.
 */
export function refreshModels(sources: ModelRefreshDependencies): RoundsTask {
  const refresher = new ModelRefresher(sources)
  return rounds({
    name: 'refresh-models',
    everyMs: 1_000,
    atStart: true,
    atOnce: AT_ONCE,
    due: () => refresher.due(),
    idOf: ({ provider }) => provider.name,
    work: (one, signal) => refresher.read(one, signal),
    waits: false,
  })
}

interface RefreshedProvider {
  /** A reload that changes nothing about a provider makes a new object. */
  provider: LlmProvider
  /** Failures in a row. */
  failures: number
  /** ms since the epoch. */
  dueAt: number
}

class ModelRefresher {
  readonly #sources: ModelRefreshDependencies
  #tended: ReadonlyMap<string, RefreshedProvider> = new Map()

  constructor(sources: ModelRefreshDependencies) {
    this.#sources = sources
  }

  *due(): Generator<RefreshedProvider> {
    this.#tend()
    const at = this.#sources.clock()
    for (const one of this.#tended.values()) if (one.dueAt <= at) yield one
  }

  #tend(): void {
    const providers = this.#sources.providers().filter(isModelListReadable)
    this.#tended = new Map(providers.map((provider) => [provider.name, this.#tendedOf(provider)]))
  }

  #tendedOf(provider: LlmProvider): RefreshedProvider {
    const known = this.#tended.get(provider.name)
    if (known?.provider === provider) return known
    if (!known || !isDeepStrictEqual(known.provider, provider)) return { provider, failures: 0, dueAt: 0 }
    this.#sources.catalogue.carry(known.provider, provider)
    known.provider = provider
    return known
  }

  /** Reads one list into the catalogue. Never rejects. */
  async read(one: RefreshedProvider, stopping: AbortSignal): Promise<void> {
    const { upstream, providers } = this.#sources
    const { provider } = one
    // A reload may have taken it away while it waited for its turn.
    if (!providers().includes(provider)) return
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(MAX_READ_MS)])
    // The one place that makes a CatalogPermit: the list is read for all, with the provider's own key.
    const permit = { kind: 'catalogue', authority: OWN_AUTHORITY, provider: provider.name } as CatalogPermit
    try {
      const models = await readModelList({ permit, provider, upstream, signal })
      this.#sources.catalogue.of(one.provider).keep(models)
      this.#succeeded(one)
    } catch (error) {
      // Says nothing of the provider.
      if (!stopping.aborted) this.#failed(one, error)
    }
  }

  #succeeded(one: RefreshedProvider): void {
    const { clock, log } = this.#sources
    if (one.failures > 0) log.info({ provider: one.provider.name }, "a provider's models can be read again")
    one.failures = 0
    one.dueAt = clock() + INTERVAL_MS
  }

  #failed(one: RefreshedProvider, error: unknown): void {
    const { catalogue, clock, log } = this.#sources
    catalogue.of(one.provider).fail()
    if (one.failures === 0) {
      const problem = messageOf(error)
      log.warn({ provider: one.provider.name, problem }, "a provider's models could not be read")
    }
    one.dueAt = clock() + Math.min(INTERVAL_MS, RETRY_MS * 2 ** one.failures)
    one.failures += 1
  }
}
