/** Characters. Shorter traces are looked for one by one. */
const MIN_LENGTH = 4
const MAX_SHIFT = 255
const PAIRS = 8_192

const searches = new WeakMap<readonly string[], TraceSearch>()

/** Looks for any of several traces at once (Wu and Manber 1994): most bytes of a text are passed over. */
export class TraceSearch {
  readonly #traces: readonly Buffer[]
  /** The length of the shortest. */
  readonly #least: number
  /** The way from two bytes to the next place where a trace may be, by the two. */
  readonly #shifts = new Uint8Array(PAIRS)
  /** The bytes of the longest but one: so many may be in the text before. */
  readonly overlap: number

  constructor(traces: readonly string[]) {
    this.#traces = traces.map((trace) => Buffer.from(trace, 'latin1'))
    const lengths = this.#traces.map(({ length }) => length)
    this.#least = Math.min(...lengths)
    this.overlap = Math.max(...lengths) - 1
    this.#shifts.fill(Math.min(this.#least - 1, MAX_SHIFT))
    for (const trace of this.#traces) {
      for (let at = 1; at < this.#least; at += 1) {
        const pair = pairOf(trace[at - 1] ?? 0, trace[at] ?? 0)
        this.#shifts[pair] = Math.min(this.#shifts[pair] ?? 0, this.#least - 1 - at)
      }
    }
  }

  /** Returns the search for these, which is made once. */
  static of(traces: readonly string[]): TraceSearch {
    const known = searches.get(traces)
    if (known) return known
    const search = new TraceSearch(traces)
    searches.set(traces, search)
    return search
  }

  isIn(text: Buffer): boolean {
    if (this.#least < MIN_LENGTH) return this.#traces.some((trace) => text.includes(trace))
    const shifts = this.#shifts
    const { length } = text
    for (let at = this.#least - 1; at < length; ) {
      const shift = shifts[pairOf(text[at - 1] ?? 0, text[at] ?? 0)] ?? 0
      if (shift === 0 && this.#isAt(text, at + 1 - this.#least)) return true
      at += shift === 0 ? 1 : shift
    }
    return false
  }

  #isAt(text: Buffer, start: number): boolean {
    return this.#traces.some((trace) => {
      let same = 0
      while (same < trace.length && text[start + same] === trace[same]) same += 1
      return same === trace.length
    })
  }
}

const pairOf = (first: number, second: number): number => ((first << 6) ^ second) & (PAIRS - 1)
