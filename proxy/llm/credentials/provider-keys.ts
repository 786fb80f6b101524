import type { Logger } from 'pino'
import { messageOf } from '../../../db/support/error-message.ts'
import type { SecretTraces } from '../../../plugins/secrets/traces.ts'
import type { DialectName } from '../dialects/registry.ts'
import type { LlmProvider } from '../options.ts'
import type { LlmUpstream } from '../upstream/answer.ts'
import { type FixedHeaders, fixedHeaders } from '../upstream/headers.ts'
import type { CredentialOptions } from './options.ts'
import { fetchKey, type IssuedKey } from './sources.ts'

const MAX_FETCH_MS = 10_000
/** A source that has failed, or whose key was refused, is not asked again before. ms. */
const PAUSE_MS = 1_000
const REFUSED_PAUSE_MS = 10_000
/** The part of its life after which a key is renewed, while it is still sent. */
const RENEWED_AT = 0.8
const MAX_LIFE_MS = 86_400_000

interface KeyDependencies {
  readonly upstream: LlmUpstream
  /** ms since the epoch. */
  readonly clock: () => number
  readonly log: Logger
  /** The longest time of a fetch. ms. Default: 10 s. */
  readonly maxFetchMs?: number
}

/** A failing source of a key. Its message holds nothing that the source said. */
export class CredentialError extends Error {}

/** The keys of providers that expire, or that others write: fetched for all calls together. */
export class ProviderKeys {
  readonly #sources: KeyDependencies
  readonly #keys = new WeakMap<LlmProvider, ProviderKey>()
  readonly #stopping = new AbortController()

  constructor(sources: KeyDependencies) {
    this.#sources = sources
  }

  /**
   * Returns the headers that carry the key of a provider, or a promise if it has to be fetched. Rejects with a
   * {@link CredentialError}.
   */
  headers(provider: LlmProvider, dialect: DialectName): FixedHeaders | Promise<FixedHeaders> {
    const one = this.#of(provider)
    const live = one.current()
    return live instanceof Promise ? live.then((key) => key.headers(dialect)) : live.headers(dialect)
  }

  /** Forgets a key that the provider has refused: the next call fetches another, once in a while. */
  refused(provider: LlmProvider): void {
    this.#keys.get(provider)?.refused()
  }

  /** The traces of the keys that these providers have now, and of those before them. */
  traces(providers: readonly LlmProvider[]): SecretTraces {
    return providers.flatMap((provider) => this.#keys.get(provider)?.traces ?? [])
  }

  /** Ends what is being fetched. */
  close(): void {
    this.#stopping.abort()
  }

  #of(provider: LlmProvider): ProviderKey {
    const { credentials } = provider
    if (!credentials) throw new Error(`${provider.name} has no credentials to fetch`)
    const known = this.#keys.get(provider)
    if (known) return known
    const made = new ProviderKey(provider, credentials, this.#sources, this.#stopping.signal)
    this.#keys.set(provider, made)
    return made
  }
}

/** One key while it is good. */
class LiveKey {
  readonly key: string
  readonly renewAt: number
  readonly expiresAt: number
  readonly #provider: LlmProvider
  readonly #headers = new Map<DialectName, FixedHeaders>()

  constructor(provider: LlmProvider, { key, lifeMs }: IssuedKey, at: number) {
    const life = Math.min(lifeMs, MAX_LIFE_MS)
    this.key = key
    this.renewAt = at + life * RENEWED_AT
    this.expiresAt = at + life
    this.#provider = provider
  }

  headers(dialect: DialectName): FixedHeaders {
    const known = this.#headers.get(dialect)
    if (known) return known
    const made = fixedHeaders({ ...this.#provider, api_key: this.key }, dialect)
    this.#headers.set(dialect, made)
    return made
  }
}

class ProviderKey {
  readonly #provider: LlmProvider
  readonly #options: CredentialOptions
  readonly #sources: KeyDependencies
  readonly #stopping: AbortSignal
  #live: LiveKey | null = null
  #before: SecretTraces = []
  #fetching: Promise<LiveKey> | null = null
  #failure: CredentialError | null = null
  #pauseUntil = 0
  #refusedAt = Number.NEGATIVE_INFINITY

  constructor(
    provider: LlmProvider,
    options: CredentialOptions,
    sources: KeyDependencies,
    stopping: AbortSignal,
  ) {
    this.#provider = provider
    this.#options = options
    this.#sources = sources
    this.#stopping = stopping
  }

  get traces(): SecretTraces {
    const { dialect } = this.#provider
    return this.#live ? [...this.#before, ...this.#live.headers(dialect).credentials] : this.#before
  }

  current(): LiveKey | Promise<LiveKey> {
    const at = this.#sources.clock()
    const live = this.#live
    if (live && at < live.renewAt) return live
    const mayFetch = this.#fetching !== null || at >= this.#pauseUntil
    if (live && at < live.expiresAt) {
      if (mayFetch) this.#fetch(at).catch(() => {})
      return live
    }
    if (!mayFetch) return Promise.reject(this.#failure ?? new CredentialError('the key was refused'))
    return this.#fetch(at)
  }

  refused(): void {
    const at = this.#sources.clock()
    if (at - this.#refusedAt < REFUSED_PAUSE_MS) return
    this.#refusedAt = at
    this.#retire()
  }

  /** Keeps no more of it than is looked for in answers. */
  #retire(): void {
    if (!this.#live) return
    this.#before = this.#live.headers(this.#provider.dialect).credentials
    this.#live = null
  }

  #fetch(at: number): Promise<LiveKey> {
    this.#fetching ??= this.#fetched(at).finally(() => {
      this.#fetching = null
    })
    return this.#fetching
  }

  async #fetched(at: number): Promise<LiveKey> {
    const { upstream, log, maxFetchMs = MAX_FETCH_MS } = this.#sources
    const { name: provider } = this.#provider
    const signal = AbortSignal.any([this.#stopping, AbortSignal.timeout(maxFetchMs)])
    try {
      const issued = await fetchKey(this.#options, { provider: this.#provider, upstream, signal, at })
      if (issued.lifeMs <= 0) throw new Error('the source of the key gave one that has expired')
      if (this.#failure) log.info({ provider }, "a provider's key can be fetched again")
      this.#failure = null
      if (this.#live?.key !== issued.key) this.#retire()
      this.#live = new LiveKey(this.#provider, issued, at)
      return this.#live
    } catch (error) {
      const problem = messageOf(error)
      if (!this.#failure && !this.#stopping.aborted) log.warn({ provider, problem }, KEY_FAILED)
      this.#failure = new CredentialError(problem)
      this.#pauseUntil = this.#sources.clock() + PAUSE_MS
      throw this.#failure
    }
  }
}

const KEY_FAILED = "a provider's key could not be fetched"
