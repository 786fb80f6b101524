import { statfs } from 'node:fs/promises'
import type { Logger } from 'pino'
import type { PeriodicTask } from './rounds.ts'

/** The interval of the readings: short against the time in which a fast disk is filled. ms. */
const EVERY_MS = 2_000
const RESERVE_BYTES = 256 * 1_048_576
const RESERVE_PART = 1 / 20

/** The bytes that are kept free on a file system of so many, if none are set: less of a small one. */
export const defaultReserve = (bytes: number): number =>
  Math.min(RESERVE_BYTES, Math.floor(bytes * RESERVE_PART))

/**
 * The room on a file system, as of the last look. Below the reserve it is low: the rest is for rows of
 * allowed calls. Does NOT keep others from filling it.
 */
export class DiskSpace {
  readonly #directory: string
  readonly #wanted: number | null
  readonly #log: Pick<Logger, 'warn' | 'info'>
  #free = Number.POSITIVE_INFINITY
  #reserve = 0

  /** `reserve`: bytes; null for one that suits the file system. 0 makes it never low. */
  constructor(directory: string, reserve: number | null, log: Pick<Logger, 'warn' | 'info'>) {
    this.#directory = directory
    this.#wanted = reserve
    this.#log = log
  }

  /** Bytes that this process may still write. */
  get free(): number {
    return this.#free
  }

  /** Bytes. */
  get reserve(): number {
    return this.#reserve
  }

  get low(): boolean {
    return this.#free < this.#reserve
  }

  async look(): Promise<void> {
    const { bavail, blocks, bsize } = await statfs(this.#directory)
    const before = this.low
    this.#free = bavail * bsize
    this.#reserve = this.#wanted ?? defaultReserve(blocks * bsize)
    if (this.low === before) return
    const seen = { free_bytes: this.#free, reserve_bytes: this.#reserve }
    if (this.low) this.#log.warn(seen, 'the disk is low: refusals have no rows of their own')
    else this.#log.info(seen, 'the disk has room again')
  }
}

export const watchDisk = (disk: DiskSpace): PeriodicTask => ({
  name: 'watch-disk',
  everyMs: EVERY_MS,
  run: () => disk.look(),
})
