import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import { Refusal } from '../refusal.ts'
import { SECRET_MAX_BYTES, verifySecret } from './hash.ts'

/** The verifications that may wait for the one that runs; past it: 503 (docs/threats.md#t15). */
const MAX_WAITING = 4
/** The stored hashes whose secret is remembered because it held. */
const CACHE_MAX = 1_000

interface VerificationQueue {
  end: Promise<unknown>
  waiting: number
}

/** Verifies one secret at a time, and one of a recognised sender; remembers those that held. */
export class SecretVerifier {
  readonly #key = randomBytes(32)
  readonly #guessesPerHash: number
  /** Verifications that run or wait, by the stored hash. */
  readonly #guesses = new Map<string, number>()
  /** The keyed digest of the secret that held, by the stored hash: another hash has none yet. */
  readonly #held = boundedCache<Buffer>(CACHE_MAX)
  /**
   * The verifications under way, by a keyed digest of hash and secret: many requests at once wait for one.
   */
  readonly #underWay = new Map<string, Promise<boolean>>()
  readonly #line: VerificationQueue = { end: Promise.resolve(), waiting: 0 }
  /** Nobody else waits in it, however many guess. */
  readonly #recognised: VerificationQueue = { end: Promise.resolve(), waiting: 0 }

  /** `guessesPerHash`: how many texts may run or wait for one stored hash. */
  constructor(guessesPerHash = Number.POSITIVE_INFINITY) {
    this.#guessesPerHash = guessesPerHash
  }

  /** Returns whether `given` has held before for this very stored hash, in the same time for every text. */
  remembers(given: string, stored: string): boolean {
    const held = this.#held.get(stored)
    return held !== undefined && timingSafeEqual(this.#digest(given), held)
  }

  /**
   * Returns whether `given` is the secret behind the stored hash. Refuses with `overloaded` if too many wait.
   * `recognised`: in the line of senders that have come with a right one before.
   */
  async verify(given: string, stored: string, recognised = false): Promise<boolean> {
    if (Buffer.byteLength(given) > SECRET_MAX_BYTES) return false
    if (this.remembers(given, stored)) return true
    // A keyed digest as the key of a map: its timing tells nothing without the key.
    const digest = this.#digest(`${stored}\n${given}`).toString('base64')
    const held = await (this.#underWay.get(digest) ??
      this.#ask(given, stored, digest, recognised ? this.#recognised : this.#line))
    if (held) this.#remember(given, stored)
    return held
  }

  /** Returns whether `given` is the secret `plain`, while no hash is stored, in constant time. */
  same(given: string, plain: string): boolean {
    const same = timingSafeEqual(this.#digest(given), this.#digest(plain))
    if (same) this.#remember(given, '')
    return same
  }

  async #ask(given: string, stored: string, digest: string, line: VerificationQueue): Promise<boolean> {
    const guesses = this.#guesses.get(stored) ?? 0
    if (line.waiting > MAX_WAITING || guesses >= this.#guessesPerHash)
      throw new Refusal('overloaded', { headers: { 'retry-after': '1' } })
    line.waiting += 1
    this.#guesses.set(stored, guesses + 1)
    const turn = line.end.then(() => verifySecret(given, stored))
    line.end = turn.catch(() => false)
    this.#underWay.set(digest, turn)
    return turn.finally(() => {
      line.waiting -= 1
      this.#underWay.delete(digest)
      const left = (this.#guesses.get(stored) ?? 1) - 1
      if (left > 0) this.#guesses.set(stored, left)
      else this.#guesses.delete(stored)
    })
  }

  #remember(given: string, stored: string): void {
    this.#held.set(stored, this.#digest(given))
  }

  #digest(text: string): Buffer {
    return createHmac('sha256', this.#key).update(text).digest()
  }
}
