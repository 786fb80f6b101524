import { createHmac } from 'node:crypto'

/** The time that a sender is recognised for since it came with the right secret. ms. */
const RECOGNISED_MS = 30 * 86_400_000
/** The time between two notes of one sender. ms. */
const NOTED_EVERY_MS = 86_400_000
/** The senders that are kept: those that came last. */
const MAX_RECOGNISED = 64

/** The storage that keeps the senders across starts. */
export interface RecognisedStore {
  /** The text of {@link RecognisedSenders}; undefined if there is none. */
  readonly read: () => Promise<string | undefined>
  /** Waits for nobody. */
  readonly write: (text: string) => void
}

/** The senders that came with the right secret in the last 30 days, kept as keyed digests. */
export class RecognisedSenders {
  readonly #key: Buffer
  readonly #store: RecognisedStore
  readonly #clock: () => number
  /** When each last came with the right secret, by its digest. ms since the epoch. */
  #lastAt = new Map<string, number>()

  constructor(key: Buffer, store: RecognisedStore, clock: () => number) {
    this.#key = key
    this.#store = store
    this.#clock = clock
  }

  /** Reads the stored senders. An unreadable text is none. */
  async load(): Promise<void> {
    this.#lastAt = new Map([...parseSenders(await this.#store.read()), ...this.#lastAt])
  }

  has(sender: string): boolean {
    const at = this.#lastAt.get(this.#digest(sender))
    return at !== undefined && this.#isRecent(at)
  }

  /** Notes that a sender came with the right secret; written down once a day. */
  note(sender: string): void {
    const digest = this.#digest(sender)
    const now = this.#clock()
    const last = this.#lastAt.get(digest)
    if (last !== undefined && Math.abs(now - last) < NOTED_EVERY_MS) return
    this.#lastAt.set(digest, now)
    // Other processes on the same database have noted theirs. If it does not answer, the next use is noted.
    this.load().then(
      () => this.#keep(),
      () => this.#lastAt.delete(digest),
    )
  }

  #keep(): void {
    const recent = [...this.#lastAt].filter(([, at]) => this.#isRecent(at)).toSorted(([, a], [, b]) => b - a)
    this.#lastAt = new Map(recent.slice(0, MAX_RECOGNISED))
    this.#store.write(JSON.stringify([...this.#lastAt]))
  }

  #isRecent(at: number): boolean {
    return Math.abs(this.#clock() - at) < RECOGNISED_MS
  }

  #digest(sender: string): string {
    return createHmac('sha256', this.#key).update(sender).digest('hex').slice(0, 32)
  }
}

function parseSenders(text: string | undefined): readonly (readonly [string, number])[] {
  if (text === undefined) return []
  try {
    const pairs: unknown = JSON.parse(text)
    return Array.isArray(pairs) ? pairs.filter(isPair).slice(0, MAX_RECOGNISED) : []
  } catch (error) {
    if (error instanceof SyntaxError) return []
    throw error
  }
}

const isPair = (pair: unknown): pair is readonly [string, number] =>
  Array.isArray(pair) && pair.length === 2 && typeof pair[0] === 'string' && Number.isSafeInteger(pair[1])
