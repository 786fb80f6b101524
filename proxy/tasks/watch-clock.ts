import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import type { PeriodicTask } from './rounds.ts'

/** Two gateways that are so far off their database may be a minute apart: as old as a proof may be. ms. */
const MAX_OFF_MS = 30_000
const EVERY_MS = 2_000

interface ClockSources {
  readonly database: Pick<Database, 'serverClock'>
  /** This machine's. ms since the epoch. */
  readonly clock: () => number
  readonly log: Pick<Logger, 'warn' | 'info'>
}

/** The difference between this machine's clock and the database's, as of the last look. */
export class ClockWatch {
  readonly #sources: ClockSources
  #aheadMs = 0

  constructor(sources: ClockSources) {
    this.#sources = sources
  }

  /** Seconds that this machine is ahead; 0: not far off. */
  get offS(): number {
    return Math.abs(this.#aheadMs) > MAX_OFF_MS ? Math.round(this.#aheadMs / 1_000) : 0
  }

  look(): void {
    const { database, clock, log } = this.#sources
    const server = database.serverClock?.() ?? null
    if (server === null) return
    const before = this.offS
    this.#aheadMs = clock() - server
    if ((this.offS === 0) === (before === 0)) return
    const seen = { ahead_s: Math.round(this.#aheadMs / 1_000) }
    if (this.offS === 0) log.info(seen, "this machine's clock agrees with the database's again")
    else log.warn(seen, "this machine's clock is not the database's: set both by a time service")
  }
}

export const watchClock = (watch: ClockWatch): PeriodicTask => ({
  name: 'watch-clock',
  everyMs: EVERY_MS,
  run: async () => watch.look(),
})
