import { createHistogram, type RecordableHistogram } from 'node:perf_hooks'

/** What the honest callers saw since they were asked last. Times are ms, from the instant at which a call was due. */
export interface Figures {
  readonly served: number
  readonly failed: number
  readonly p50: number
  readonly p99: number
  readonly longest: number
  /** What went wrong, and how often. */
  readonly faults: Readonly<Record<string, number>>
}

/** Counts calls. */
export class Tally {
  readonly #times: RecordableHistogram = createHistogram({ lowest: 1, highest: 600_000_000, figures: 3 })
  readonly #faults = new Map<string, number>()
  #served = 0
  #failed = 0

  served(ms: number): void {
    this.#served += 1
    this.#times.record(Math.max(1, Math.round(ms * 1_000)))
  }

  failed(why: string): void {
    this.#failed += 1
    this.#faults.set(why, (this.#faults.get(why) ?? 0) + 1)
  }

  figures(): Figures {
    return {
      served: this.#served,
      failed: this.#failed,
      p50: this.#times.percentile(50) / 1_000,
      p99: this.#times.percentile(99) / 1_000,
      longest: this.#served === 0 ? 0 : this.#times.max / 1_000,
      faults: Object.fromEntries(this.#faults),
    }
  }
}
