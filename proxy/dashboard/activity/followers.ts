import { Readable } from 'node:stream'
import type { Logger } from 'pino'
import { DatabaseUnavailable } from '../../../db/support/unavailable.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/** The time between two looks for new rows, while anybody follows. ms. */
const EVERY_MS = 500
/** The looks between two signs of life, by which a connection that is gone is found. */
const LOOKS_PER_SIGN = 30
/** Per process. */
const MAX_FOLLOWERS = 64
/** Per operator: a browser opens six connections to a host, and pages need some. */
const MAX_PER_OPERATOR = 4
/** Bytes that may wait for a browser that does not read. */
const MAX_BACKLOG_BYTES = 1_024

interface FollowerDependencies {
  readonly last: () => Promise<number>
  readonly log: Pick<Logger, 'error'>
}

/**
 * Open streams by which pages hear that rows were recorded, by whichever process. One look at the ledger
 * serves all. An event holds the place of the last row. A browser that does not read is let go.
 */
export class ActivityFollowers {
  readonly #sources: FollowerDependencies
  readonly #streams = new Map<Readable, string>()
  #timer: NodeJS.Timeout | undefined
  #looking = false
  #looks = 0
  /** The place of the last row that was seen; null before the first look. */
  #seen: number | null = null
  #closed = false

  constructor(sources: FollowerDependencies) {
    this.#sources = sources
  }

  get size(): number {
    return this.#streams.size
  }

  /** Opens a stream, which ends when it is destroyed. Refuses with `overloaded` if there are too many. */
  open(operator: string): Readable {
    const own = [...this.#streams.values()].filter((one) => one === operator).length
    if (this.#closed || own >= MAX_PER_OPERATOR || this.size >= MAX_FOLLOWERS)
      throw new Refusal('overloaded', {
        message: 'Too many pages already follow the ledger. Close one of them.',
        headers: { 'retry-after': '5' },
      })
    const stream = new Readable({ highWaterMark: MAX_BACKLOG_BYTES, read: () => {} })
    stream.once('close', () => this.#over(stream))
    this.#streams.set(stream, operator)
    // A browser comes back by itself after so many ms.
    stream.push('retry: 2000\n\n')
    this.#timer ??= setInterval(() => void this.#look(), EVERY_MS).unref()
    void this.#look()
    return stream
  }

  /** Ends all of them, and opens no more. */
  close(): void {
    this.#closed = true
    for (const stream of [...this.#streams.keys()]) stream.push(null)
    clearInterval(this.#timer)
  }

  #over(stream: Readable): void {
    this.#streams.delete(stream)
    if (this.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
    this.#seen = null
  }

  async #look(): Promise<void> {
    if (this.#looking) return
    this.#looking = true
    try {
      const last = await this.#sources.last()
      if (this.#seen !== null && this.#seen !== last) this.#tell(`event: rows\ndata: ${last}\n\n`)
      if (this.size > 0) this.#seen = last
    } catch (error) {
      // While the database is away nobody can read a page either. The next look asks again.
      if (!(error instanceof DatabaseUnavailable)) this.#sources.log.error({ err: error }, UNSEEN)
    }
    this.#looking = false
    this.#looks = (this.#looks + 1) % LOOKS_PER_SIGN
    if (this.#looks === 0) this.#tell(':\n\n')
  }

  #tell(event: string): void {
    for (const stream of [...this.#streams.keys()]) if (!this.#closed && !stream.push(event)) stream.destroy()
  }
}

const UNSEEN = 'pages that follow the ledger could not be told about new rows'
