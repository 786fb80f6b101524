/** How many failures an address may have within the window before it is turned away unheard (WIRE.md §1). */
const FAILURES = 10
const WINDOW_MS = 60_000
/** Addresses remembered at once. Past it the oldest is forgotten: memory is bounded, a flood only shortens memory. */
const ADDRESSES = 10_000

/** Counts failures per address over a fixed window. Owned by one `admin-secret` plugin; lost with the process. */
export class Throttle {
  readonly #seen = new Map<string, { failures: number; until: number }>()

  /** Seconds to wait, or 0 where the address may try. */
  waitS(address: string, at: number): number {
    const entry = this.#seen.get(address)
    if (!entry || at >= entry.until || entry.failures < FAILURES) return 0
    return Math.ceil((entry.until - at) / 1000)
  }

  failed(address: string, at: number): void {
    const entry = this.#seen.get(address)
    if (entry && at < entry.until) {
      entry.failures += 1
      return
    }
    this.#seen.delete(address)
    this.#seen.set(address, { failures: 1, until: at + WINDOW_MS })
    const [oldest] = this.#seen.keys()
    if (this.#seen.size > ADDRESSES && oldest !== undefined) this.#seen.delete(oldest)
  }
}
