import { isDeepStrictEqual } from 'node:util'
import type { Logger } from 'pino'
import { messageOf } from '../../db/support/error-message.ts'
import { OWN_AUTHORITY } from '../../plugins/call-authority.ts'
import type { CatalogPermit } from '../../plugins/permit.ts'
import { isModelListReadable, type ModelCatalogue } from '../llm/catalogue.ts'
import type { ProviderKeys } from '../llm/credentials/provider-keys.ts'
import type { LlmOptions, LlmProvider } from '../llm/options.ts'
import type { LlmUpstream } from '../llm/upstream/client.ts'
import { ModelListRefusal, type ModelListRequest, readModelList } from '../llm/upstream/model-list.ts'
import { providerSecretTraces } from '../llm/upstream/words.ts'
import { type RoundsTask, rounds } from './rounds.ts'

interface ModelRefreshDependencies {
  readonly catalogue: ModelCatalogue
  readonly upstream: LlmUpstream
  readonly providerKeys: Pick<ProviderKeys, 'headers'>
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

/** False of a provider that has no list of models, or another one: calls may well be answered. */
const isOutage = (error: unknown): boolean =>
  error instanceof ModelListRefusal
    ? error.status >= 500 || error.status === 401 || error.status === 403
    : !(error instanceof Error && error.message.startsWith('the model list'))

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
    const { upstream, providerKeys, providers } = this.#sources
    const { provider } = one
    // A reload may have taken it away while it waited for its turn.
    if (!providers().includes(provider)) return
    const signal = AbortSignal.any([stopping, AbortSignal.timeout(MAX_READ_MS)])
    try {
      const models = await readModels({ provider, upstream, providerKeys, signal })
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
    catalogue.of(one.provider).fail(isOutage(error) ? { at: clock(), problem: messageOf(error) } : null)
    if (one.failures === 0) {
      const problem = messageOf(error)
      log.warn({ provider: one.provider.name, problem }, "a provider's models could not be read")
    }
    one.dueAt = clock() + Math.min(INTERVAL_MS, RETRY_MS * 2 ** one.failures)
    one.failures += 1
  }
}

// The one place that makes a CatalogPermit: the list is read for all, with the provider's own key.
const readModels = (asked: Omit<ModelListRequest, 'permit'>) =>
  readModelList({
    ...asked,
    permit: { kind: 'catalogue', authority: OWN_AUTHORITY, provider: asked.provider.name } as CatalogPermit,
  })

/** A provider is asked for no operator's sake more often than that. ms. */
const TRIAL_PAUSE_MS = 5_000

/** The result of reading a provider's list of models for an operator who wants to know. */
export interface ProviderTrial {
  /** ms since the epoch. */
  readonly at: number
  readonly ms: number
  /** The number of models that it listed; null: the list could not be read. */
  readonly models: number | null
  readonly problem: string | null
}

const NO_KEY = 'The gateway has no key of its own for this provider.'
const NO_LIST = 'Google Cloud has no list of these models to ask for.'

type TrialDependencies = Pick<ModelRefreshDependencies, 'catalogue' | 'upstream' | 'providerKeys' | 'clock'>

/** Asks providers for their lists, each at most once in five seconds: until then the answer is the last one. */
export class ProviderTrials {
  readonly #sources: TrialDependencies
  readonly #recent = new Map<string, { readonly at: number; readonly trial: Promise<ProviderTrial> }>()

  constructor(sources: TrialDependencies) {
    this.#sources = sources
  }

  /** Resolves with what came of it. Null: there is no such provider. `isNew`: it was asked for this caller. */
  async ask(
    options: LlmOptions,
    name: string,
  ): Promise<(ProviderTrial & { readonly isNew: boolean }) | null> {
    const provider = options.providers.find((one) => one.name === name)
    if (!provider) return null
    const at = this.#sources.clock()
    const recent = this.#recent.get(name)
    if (recent && Math.abs(at - recent.at) < TRIAL_PAUSE_MS) return { ...(await recent.trial), isNew: false }
    const trial = this.#read(options, provider, at)
    this.#recent.set(name, { at, trial })
    return { ...(await trial), isNew: true }
  }

  async #read(options: LlmOptions, provider: LlmProvider, at: number): Promise<ProviderTrial> {
    if (!isModelListReadable(provider))
      return { at, ms: 0, models: null, problem: provider.api === 'vertex' ? NO_LIST : NO_KEY }
    const { catalogue, upstream, providerKeys } = this.#sources
    const began = performance.now()
    const done = (models: number | null, problem: string | null): ProviderTrial => ({
      ...{ at, ms: Math.round(performance.now() - began), models, problem },
    })
    const secrets = providerSecretTraces(options)
    try {
      const signal = AbortSignal.timeout(MAX_READ_MS)
      const models = await readModels({ provider, upstream, providerKeys, signal, secrets })
      catalogue.of(provider).keep(models)
      return done(models.length, null)
    } catch (error) {
      const words = error instanceof ModelListRefusal ? error.words : null
      return done(null, words === null ? messageOf(error) : `${messageOf(error)}: ${words}`)
    }
  }
}
