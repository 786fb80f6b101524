export interface ConnectionPlace {
  /** True while it shakes hands, and while a known caller's call is under way: it is not ended then. */
  isProtected: boolean
}

export interface ConnectionLimits {
  readonly maxConnections: number
  /** The most calls under way on a connection besides its first one (pipelining). */
  readonly maxPipelined: number
}

/** The fate of a connection that came when all places were taken: another one was ended, or it itself. */
export type ConnectionOutcome = 'idle_ended' | 'refused'

export const UNLIMITED_CONNECTIONS: ConnectionLimits = { maxConnections: Infinity, maxPipelined: Infinity }

const MAX_LOOKED_AT = 512

/**
 * The connections of a listener, so many that a descriptor is left for each call on them
 * (docs/threats.md#h2). If all places are taken, the oldest on which nobody known waits ends for the
 * newcomer, or else the newcomer does.
 */
export class ConnectionLimit {
  readonly limits: ConnectionLimits
  readonly #onFull: (outcome: ConnectionOutcome) => void
  /** The function that ends each of them. Those seen protected come last. */
  readonly #open = new Map<ConnectionPlace, () => void>()
  #beside = 0
  /** ms of `performance.now()`. */
  #fullAt = Number.NEGATIVE_INFINITY

  constructor(limits: ConnectionLimits, onFull: (outcome: ConnectionOutcome) => void = () => {}) {
    this.limits = limits
    this.#onFull = onFull
  }

  get open(): number {
    return this.#open.size
  }

  /** Tells whether a connection has found no place within so many ms. */
  wasFull(withinMs: number): boolean {
    return performance.now() - this.#fullAt < withinMs
  }

  /**
   * Takes a place for a connection, which is protected until somebody says otherwise. Null: there is none.
   */
  enter(end: () => void): ConnectionPlace | null {
    if (this.open >= this.limits.maxConnections && !this.#makeRoom()) return null
    const place = { isProtected: true }
    this.#open.set(place, end)
    return place
  }

  /** Leaves the place of a connection that has closed; once or more. */
  leave(place: ConnectionPlace): void {
    this.#open.delete(place)
  }

  /** Takes a place for a call alongside others of its connection, unless there is none. */
  reservePipelined(): boolean {
    if (this.#beside >= this.limits.maxPipelined) return false
    this.#beside += 1
    return true
  }

  releasePipelined(): void {
    this.#beside -= 1
  }

  #makeRoom(): boolean {
    this.#fullAt = performance.now()
    const found = this.#findUnprotected()
    this.#onFull(found ? 'idle_ended' : 'refused')
    if (!found) return false
    const [place, end] = found
    this.#open.delete(place)
    end()
    return true
  }

  #findUnprotected(): readonly [ConnectionPlace, () => void] | null {
    let looked = 0
    for (const found of this.#open) {
      const [place, end] = found
      if (!place.isProtected) return found
      looked += 1
      if (looked > Math.min(MAX_LOOKED_AT, this.open)) return null
      this.#open.delete(place)
      this.#open.set(place, end)
    }
    return null
  }
}

export const CONNECTION_PLACE = Symbol('place')

export interface PlacedConnection {
  [CONNECTION_PLACE]?: ConnectionPlace
}
