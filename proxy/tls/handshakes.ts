/** Connections that may shake hands at once, and no more than half of those that may be open. */
export const MAX_HANDSHAKES = 2_048

type EndHandshake = () => void

/** The connections that shake hands. If too many, the newest of the address with most of them ends. */
export class PendingHandshakes {
  readonly #limit: number
  readonly #byAddress = new Map<string, Set<EndHandshake>>()
  #count = 0

  constructor(limit = MAX_HANDSHAKES) {
    this.#limit = limit
  }

  /** Counts a handshake. Returns a function to call, once or more, when it is over. */
  enter(address: string, end: EndHandshake): () => void {
    const own = this.#byAddress.get(address) ?? new Set()
    this.#byAddress.set(address, own)
    own.add(end)
    this.#count += 1
    if (this.#count > this.#limit) this.#endOne()
    return () => this.#forget(address, end)
  }

  endAll(): void {
    for (const [address, ends] of [...this.#byAddress]) for (const end of [...ends]) this.#end(address, end)
  }

  #endOne(): void {
    const [first, ...others] = this.#byAddress
    if (!first) return
    const [address, ends] = others.reduce((most, each) => (each[1].size >= most[1].size ? each : most), first)
    const newest = [...ends].at(-1)
    if (newest) this.#end(address, newest)
  }

  #end(address: string, end: EndHandshake): void {
    this.#forget(address, end)
    end()
  }

  #forget(address: string, end: EndHandshake): void {
    const own = this.#byAddress.get(address)
    if (!own?.delete(end)) return
    this.#count -= 1
    if (own.size === 0) this.#byAddress.delete(address)
  }
}
