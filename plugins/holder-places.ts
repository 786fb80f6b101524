interface PlaceLimits {
  /** The places that one holder may take at once. */
  readonly own: number
  /** The places that all holders together may take at once. */
  readonly all: number
}

/** A place that was taken, and the function that leaves it, once or more; or the limit that is reached. */
export type PlaceAnswer =
  | { readonly taken: () => void }
  | { readonly taken: null; readonly limit: keyof PlaceLimits; readonly held: number }

/** Limits something dear, and each holder's part of it (docs/threats.md#h2). Nobody waits. */
export class HolderPlaces {
  readonly #limits: PlaceLimits
  readonly #held = new Map<string, number>()
  #all = 0

  constructor(limits: PlaceLimits) {
    this.#limits = limits
  }

  get full(): boolean {
    return this.#all >= this.#limits.all
  }

  acquire(holder: string): PlaceAnswer {
    const own = this.#held.get(holder) ?? 0
    if (own >= this.#limits.own) return { taken: null, limit: 'own', held: own }
    if (this.full) return { taken: null, limit: 'all', held: this.#all }
    this.#held.set(holder, own + 1)
    this.#all += 1
    let isLeft = false
    return {
      taken: () => {
        if (isLeft) return
        isLeft = true
        this.#leave(holder)
      },
    }
  }

  #leave(holder: string): void {
    const left = (this.#held.get(holder) ?? 1) - 1
    if (left === 0) this.#held.delete(holder)
    else this.#held.set(holder, left)
    this.#all -= 1
  }
}
