import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import { serviceEntry } from './entries.ts'

/**
 * Counts refusals of callers without a known principal, by reason. They become one row per reason and minute
 * (`auth.refused`, docs/ledger.md#strangers): an anonymous caller must not be able to grow the chain.
 */
export class AnonymousRefusals {
  readonly #counts = new Map<string, number>()
  #since: number
  #taken: { readonly counts: ReadonlyMap<string, number>; readonly since: number } | null = null

  constructor(at: number) {
    this.#since = at
  }

  count(reason: string, times = 1): void {
    this.#counts.set(reason, (this.#counts.get(reason) ?? 0) + times)
  }

  /** Returns the rows for all that was counted since the last call, and starts again. */
  drain(at: number, configDigest: string): readonly LedgerEntry[] {
    const since = new Date(this.#since).toISOString()
    const entries = [...this.#counts].map(([reason, count]) =>
      serviceEntry('auth.refused', 'denied', { reason, count, since }, at, configDigest),
    )
    this.#taken = { counts: new Map(this.#counts), since: this.#since }
    this.#counts.clear()
    this.#since = at
    return entries
  }

  /** Counts again all that the last `drain` gave out: its rows could not be written. */
  restore(): void {
    if (!this.#taken) return
    for (const [reason, times] of this.#taken.counts) this.count(reason, times)
    this.#since = this.#taken.since
    this.#taken = null
  }
}
