import { type Entry, LedgerError } from '../../db/audit/entry.ts'
import type { Ledger } from '../../db/audit/ledger.ts'

/**
 * The outcome rows that may wait for a ledger that is failing. Past it they are lost to this run; boot
 * recovery adds `unknown`.
 */
const MAX_OWED = 100_000

const UNSTORABLE: Entry['detail'] = { reason: 'detail_unstorable' }

/**
 * Writes outcome rows, and keeps those that the ledger would not take: exactly one outcome per allowed call,
 * whoever hangs up and whatever the disk does (AUDIT.md). A crash leaves decisions without outcome; the next
 * boot completes them.
 */
export class Outcomes {
  readonly #ledger: Ledger
  readonly #onLost: (error: unknown) => void
  #owed: Entry[] = []
  readonly #underWay = new Set<Promise<void>>()

  constructor(ledger: Ledger, onLost: (error: unknown) => void) {
    this.#ledger = ledger
    this.#onLost = onLost
  }

  /** Writes a row. Does not wait: nobody's answer depends on it. */
  settle(entry: Entry): void {
    const written = this.#write(entry).finally(() => this.#underWay.delete(written))
    this.#underWay.add(written)
  }

  get owed(): number {
    return this.#owed.length
  }

  /** Tries the kept rows again. Called by a task, and once more while stopping. */
  async retry(): Promise<void> {
    const waiting = this.#owed
    this.#owed = []
    await Promise.all(waiting.map((entry) => this.#write(entry)))
  }

  /** Resolves when every row handed in so far was written or kept. They wait for nobody any more. */
  async flushed(): Promise<void> {
    while (this.#underWay.size > 0) {
      // Nothing to write, but it cannot wait, and all who stand in front of it go too. What the ledger says,
      // each row hears.
      await Promise.allSettled([this.#ledger.commit({ entries: [] }), ...this.#underWay])
    }
  }

  async #write(entry: Entry): Promise<void> {
    try {
      await this.#ledger.commit({ entries: [entry], lazy: true })
    } catch (error) {
      // What an upstream reported may be more than a row can hold. The row counts more than the report.
      const unstorable = !(error instanceof LedgerError)
      if (unstorable && entry.detail !== UNSTORABLE) return this.#write({ ...entry, detail: UNSTORABLE })
      if (!unstorable && this.#owed.length < MAX_OWED) this.#owed.push(entry)
      else this.#onLost(error)
    }
  }
}
