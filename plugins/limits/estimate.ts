import { LRUCache } from 'lru-cache'

/** The size of a call before it is made. */
export interface CallSize {
  /** Bytes of its body. */
  readonly bytes: number
  /** The most tokens of output that it asks for; null: it says nothing. */
  readonly maxOutput: number | null
  /** True: it is told to its provider in the words of another API. */
  readonly isTranslated?: boolean
}

/** The things that a call brings in, and its bytes do not bound. */
export interface BroughtIn {
  /** The member that has no bound whatever; null: none. */
  readonly unbounded: string | null
  /** A member that brings in as much as the model can take; null: none. */
  readonly whole: string | null
  /** Pictures in its body. */
  readonly pictures: number
}

/** Tokens. No model of the table counts a picture as more: the dearest known way is some 48,000. */
const MAX_PICTURE = 50_000

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

/** Tokens of a call whose bytes are all that it brings in, at the most: each is one, and the answer as long as it may be. */
export const mostTokens = ({ bytes, maxOutput }: CallSize) => ({
  input: bytes,
  output: maxOutput ?? Number.POSITIVE_INFINITY,
})

/**
 * Tokens of input at the most, whatever the call brings in. A byte that is translated counts as two. `window`: the
 * tokens that the model can take; null, not known. Returns Infinity if that bounds it, and is not known.
 */
export function mostInput(
  { bytes, isTranslated = false }: CallSize,
  { whole, pictures }: BroughtIn,
  window: number | null,
): number {
  const own = isTranslated ? 2 * bytes : bytes
  const most = window ?? Number.POSITIVE_INFINITY
  if (whole !== null) return Math.max(own, most)
  return Math.max(own, Math.min(own + pictures * MAX_PICTURE, most))
}

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
