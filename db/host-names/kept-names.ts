import type { LookupFunction } from 'node:net'
import { boundedCache } from '../support/bounded-cache.ts'
import { type HostLookupOptions, lookUpHost, type ResolvedAddresses } from './ask.ts'
import { HostNameError } from './host-name-error.ts'
import type { HostAddress } from './machine-names.ts'

const MAX_NAMES = 1_024
const MAX_UNDER_WAY = 64
/** The time after which a look-up is called off. ms. */
const DEADLINE_MS = 5_000
/** The bounds of the time for which an answer is believed unasked, whatever its time to live. ms. */
const [MIN_FRESH_MS, MAX_FRESH_MS] = [1_000, 30_000]
/** The time that the last good answer may be used if there is no new one (RFC 8767 §5). ms. */
const MAX_STALE_MS = 86_400_000
/** The time that a caller with such an answer waits for a newer one. ms. */
const PATIENCE_MS = 250
/** The time without another attempt after one that failed (RFC 8767 §5). ms. */
const RETRY_MS = 5_000

type HostLookup = (host: string, options: HostLookupOptions) => Promise<ResolvedAddresses>

interface CachedHostName {
  readonly addresses: readonly HostAddress[]
  /** Not asked for again before. ms, monotonic. */
  readonly freshUntil: number
  readonly goodUntil: number
}

interface HostNameCacheOptions {
  /** The name servers, `address` or `address:port`. Absent: the machine's. */
  readonly servers?: readonly string[] | undefined
  readonly lookUp?: HostLookup
  /** Monotonic. ms. */
  readonly now?: () => number
}

/**
 * The names of the operator's providers, servers and database, one object for each purpose, so that none
 * waits for another (docs/threats.md#h2). One look-up of a name is under way at once, for five seconds at
 * most. A good answer is believed for its time to live, within 1 and 30 s; without a newer one it counts for
 * a day. A denied name is forgotten. Does NOT judge addresses.
 */
export class HostNameCache {
  readonly #servers: readonly string[] | undefined
  readonly #lookUp: HostLookup
  readonly #now: () => number
  readonly #kept = boundedCache<CachedHostName>(MAX_NAMES)
  readonly #underWay = new Map<string, Promise<readonly HostAddress[]>>()

  constructor({ servers, lookUp = lookUpHost, now = () => performance.now() }: HostNameCacheOptions = {}) {
    this.#servers = servers
    this.#lookUp = lookUp
    this.#now = now
  }

  /** Returns all addresses of a name. Rejects with {@link HostNameError}. */
  readonly resolve = async (host: string): Promise<readonly HostAddress[]> => {
    const kept = this.#kept.get(host)
    const at = this.#now()
    if (kept && at < kept.freshUntil) return kept.addresses
    const asked = this.#ask(host)
    if (!kept || at >= kept.goodUntil) return asked
    const { promise: patience, resolve: lose } = Promise.withResolvers<readonly HostAddress[]>()
    const timer = setTimeout(() => lose(kept.addresses), PATIENCE_MS)
    try {
      return await Promise.race([asked, patience])
    } catch (error) {
      if (error instanceof HostNameError && error.denied) throw error
      return kept.addresses
    } finally {
      clearTimeout(timer)
    }
  }

  readonly lookup: LookupFunction = (host, { all = false }, done) => void this.#tell(host, all, done)

  async #tell(host: string, all: boolean, done: Parameters<LookupFunction>[2]): Promise<void> {
    let addresses: readonly HostAddress[]
    try {
      addresses = await this.resolve(host)
    } catch (error) {
      return done(error instanceof Error ? error : new Error(String(error)), '')
    }
    const [first] = addresses
    if (all) done(null, [...addresses])
    else done(null, first?.address ?? '', first?.family)
  }

  #ask(host: string): Promise<readonly HostAddress[]> {
    const underWay = this.#underWay.get(host)
    if (underWay) return underWay
    if (this.#underWay.size >= MAX_UNDER_WAY) return Promise.reject(new HostNameError(host, 'EBUSY'))
    const asked = this.#find(host).finally(() => this.#underWay.delete(host))
    this.#underWay.set(host, asked)
    // // A caller with the last good answer may not wait for this one.
    asked.catch(() => undefined)
    return asked
  }

  async #find(host: string): Promise<readonly HostAddress[]> {
    try {
      const { addresses, ttlS } = await inTime(host, (signal) =>
        this.#lookUp(host, { servers: this.#servers, signal }),
      )
      const at = this.#now()
      const fresh = Math.min(Math.max(ttlS * 1000, MIN_FRESH_MS), MAX_FRESH_MS)
      this.#kept.set(host, { addresses, freshUntil: at + fresh, goodUntil: at + MAX_STALE_MS })
      return addresses
    } catch (error) {
      const kept = this.#kept.get(host)
      if (error instanceof HostNameError && error.denied) this.#kept.delete(host)
      else if (kept) this.#kept.set(host, { ...kept, freshUntil: this.#now() + RETRY_MS })
      throw error
    }
  }
}

/** Waits until its time is over; the look-up is called off then, or left alone. */
async function inTime(
  host: string,
  lookUp: (signal: AbortSignal) => Promise<ResolvedAddresses>,
): Promise<ResolvedAddresses> {
  const over = new AbortController()
  const { promise: late, reject } = Promise.withResolvers<never>()
  const timer = setTimeout(() => {
    const error = new HostNameError(host, 'ETIMEOUT')
    reject(error)
    over.abort(error)
  }, DEADLINE_MS)
  try {
    return await Promise.race([lookUp(over.signal), late])
  } finally {
    clearTimeout(timer)
  }
}
