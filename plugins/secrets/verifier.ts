import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { Refusal } from '../refusal.ts'
import { SECRET_MAX_BYTES, verifySecret } from './hash.ts'

/**
 * The time that a secret which held is remembered, as a keyed digest. ms. A rotation ends it at once: the
 * digest covers the hash.
 */
const CACHE_MS = 300_000
/**
 * The verifications that may wait behind the one that runs. Past it: 503, so that guesses cannot occupy the
 * thread pool (docs/threats.md#t15).
 */
const MAX_WAITING = 4
/** The secrets that are remembered because they held. */
const CACHE_MAX = 1_000

/** Runs one verification at a time and remembers what held. Owns its key; nothing of it is stored. */
export class SecretVerifier {
  readonly #key = randomBytes(32)
  readonly #guessesPerHash: number
  /** Verifications that run or wait, by the stored hash. */
  readonly #guesses = new Map<string, number>()
  /** The end of each digest's time. ms since the epoch. */
  readonly #known = new LRUCache<string, number>({ max: CACHE_MAX })
  /**
   * The verifications under way, by the same digest: of a client's many requests at once, one is verified and
   * all get its result.
   */
  readonly #underWay = new Map<string, Promise<boolean>>()
  #line: Promise<unknown> = Promise.resolve()
  #waiting = 0

  /**
   * `guessesPerHash`: how many texts may run or wait for one stored hash, so that its holder cannot occupy
   * the line.
   */
  constructor(guessesPerHash = Number.POSITIVE_INFINITY) {
    this.#guessesPerHash = guessesPerHash
  }

  /**
   * Returns whether `given` is the secret behind the stored hash. Refuses with `overloaded` where too many
   * wait.
   */
  async verify(given: string, stored: string, at: number): Promise<boolean> {
    if (Buffer.byteLength(given) > SECRET_MAX_BYTES) return false
    // A keyed digest as the key of a map: what its timing tells is of no use without the key.
    const digest = this.#digest(`${stored}\n${given}`).toString('base64')
    if (at < (this.#known.get(digest) ?? 0)) return true
    const verification = this.#underWay.get(digest) ?? this.#ask(given, stored, digest)
    const held = await verification
    if (held) this.#known.set(digest, at + CACHE_MS)
    return held
  }

  async #ask(given: string, stored: string, digest: string): Promise<boolean> {
    const guesses = this.#guesses.get(stored) ?? 0
    if (this.#waiting > MAX_WAITING || guesses >= this.#guessesPerHash)
      throw new Refusal('overloaded', { headers: { 'retry-after': '1' } })
    this.#waiting += 1
    this.#guesses.set(stored, guesses + 1)
    const turn = this.#line.then(() => verifySecret(given, stored))
    this.#line = turn.catch(() => false)
    this.#underWay.set(digest, turn)
    return turn.finally(() => {
      this.#waiting -= 1
      this.#underWay.delete(digest)
      const left = (this.#guesses.get(stored) ?? 1) - 1
      if (left > 0) this.#guesses.set(stored, left)
      else this.#guesses.delete(stored)
    })
  }

  /** Compares in constant time, whatever the lengths. */
  same(given: string, expected: string): boolean {
    return timingSafeEqual(this.#digest(given), this.#digest(expected))
  }

  #digest(text: string): Buffer {
    return createHmac('sha256', this.#key).update(text).digest()
  }
}
