/** The most texts remembered: those seen last. */
const MAX_TEXTS = 100

/** A stored text that is not the one that rows have bound. */
export interface EditedText {
  /** The thing that it belongs to: `the bundle of acme::bot`. */
  readonly what: string
  /** When it was met last. ms since the epoch. */
  readonly at: number
}

/**
 * Remembers, in memory, the texts of the database that were read, did not fit their digests, and so let nobody
 * in (docs/ledger.md#owner).
 */
export class EditedTexts {
  readonly #tell: (what: string) => void
  readonly #seen = new Map<string, EditedText>()

  /** `tell`: called once for each. */
  constructor(tell: (what: string) => void) {
    this.#tell = tell
  }

  note(what: string, at: number): void {
    if (!this.#seen.has(what)) this.#tell(what)
    this.#seen.delete(what)
    this.#seen.set(what, { what, at })
    const [oldest] = this.#seen.keys()
    if (this.#seen.size > MAX_TEXTS && oldest !== undefined) this.#seen.delete(oldest)
  }

  /** Lists them, the last one that was met first. */
  list(): readonly EditedText[] {
    return [...this.#seen.values()].reverse()
  }
}
