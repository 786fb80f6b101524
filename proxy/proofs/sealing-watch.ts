import type { Database } from '../../db/database.ts'
import { isTreeAsSigned } from '../../db/ledger/tree/store.ts'
import type { MonotonicClock } from '../../plugins/secrets/throttle.ts'
import type { PeriodicTask } from '../tasks/rounds.ts'

/** The interval of the looks, and the time without a checkpoint after which sealing has stopped. ms. */
const EVERY_MS = 10_000
const STOPPED_MS = 30_000

interface SealingSources {
  readonly database: Pick<Database, 'kysely' | 'treeRows'>
  /** The sealer of this process: it knows at once that it can sign nothing more. */
  readonly sealer: { readonly isAtFault: boolean }
  readonly now: MonotonicClock
  /** The time between two checkpoints. ms. */
  readonly intervalMs: () => number
}

/**
 * Tells whether the ledger is sealed no more (docs/runbooks.md#not-sealed): rows wait, or the tree is not the
 * one that was signed last, and nothing of it has changed for {@link STOPPED_MS}. Each process looks for
 * itself: the one that leads may be gone.
 */
export class SealingWatch {
  readonly #sources: SealingSources
  /** The tree that lacks rows as it was seen first, and when. ms of the monotonic clock. */
  #stuck: { readonly tree: string; readonly since: number } | null = null

  constructor(sources: SealingSources) {
    this.#sources = sources
  }

  get stopped(): boolean {
    const { sealer, now, intervalMs } = this.#sources
    if (sealer.isAtFault) return true
    return this.#stuck !== null && now() - this.#stuck.since >= STOPPED_MS + 2 * intervalMs()
  }

  async look(): Promise<void> {
    const { database, now } = this.#sources
    const { standing, isWhole } = await isTreeAsSigned(database)
    if (isWhole) this.#stuck = null
    else if (this.#stuck?.tree !== standing) this.#stuck = { tree: standing, since: now() }
  }
}

export const watchSealing = (watch: SealingWatch): PeriodicTask => ({
  name: 'watch-sealing',
  everyMs: EVERY_MS,
  run: () => watch.look(),
})
