import { LRUCache } from 'lru-cache'

/** The size of a call before it is made. */
export interface CallSize {
  /** Bytes of its body. */
  readonly bytes: number
  /** The most tokens of output that it asks for; null: it says nothing. */
  readonly maxOutput: number | null
  /** The member of its body that brings in what is not in it; absent: none is known. */
  readonly unbounded?: string
}

/** The output that is held while little is known, however much a call asks for. Tokens. */
const FIRST_OUTPUT = 4_096
const SAMPLES = 64
/** Fewer say nothing of the next one. */
const MIN_SAMPLES = 8
/** Pairs of principal and model that are remembered: the latest. */
const MAX_PAIRS = 10_000

/** Tokens of a call, while nothing is known of calls like it: few bytes a token, and a moderate answer. */
export const firstTokens = ({ bytes, maxOutput }: CallSize) => ({
  input: Math.ceil(bytes / 3),
  output: Math.min(maxOutput ?? FIRST_OUTPUT, FIRST_OUTPUT),
})

/** Tokens of a call at the most: every byte is one, and the answer is as long as it may be. */
export const mostTokens = ({ bytes, maxOutput }: CallSize) => ({
  input: bytes,
  output: maxOutput ?? Number.POSITIVE_INFINITY,
})

/** Tokens of input that a call has at the least. */
export const leastInput = ({ bytes }: CallSize): number => Math.ceil(bytes / 4)

/** The latest usage of calls that have ended, by principal, model and measure, in this process. */
export class UsageSamples {
  readonly #samples = new LRUCache<string, number[]>({ max: MAX_PAIRS })

  /** Adds what a call has used. */
  add(key: string, used: number): void {
    const known = this.#samples.get(key)
    if (!known) return void this.#samples.set(key, [used])
    known.push(used)
    if (known.length > SAMPLES) known.shift()
  }

  /** Returns the usage that 95 of 100 calls have not passed; null while there are too few. */
  percentile(key: string): number | null {
    const known = this.#samples.get(key)
    if (!known || known.length < MIN_SAMPLES) return null
    const sorted = known.toSorted((one, other) => one - other)
    return sorted[Math.ceil(sorted.length * 0.95) - 1] ?? null
  }
}
