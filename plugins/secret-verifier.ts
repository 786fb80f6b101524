import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { Refusal } from './refusal.ts'
import { SECRET_MAX_BYTES, verifySecret } from './secret-hash.ts'

/** How long a secret that held is remembered, as a keyed digest. ms. A rotation ends it at once: the digest covers the hash. */
const REMEMBERED_MS = 300_000
/** Verifications waiting behind the one that runs. Past it: 503, so that guesses cannot occupy the thread pool (SECURITY T15). */
const WAITING = 4
const MOST = 1_000

/** Runs one verification at a time and remembers what held. Owns its key; nothing of it is stored. */
export class SecretVerifier {
  readonly #key = randomBytes(32)
  readonly #known = new Map<string, number>()
  #line: Promise<unknown> = Promise.resolve()
  #waiting = 0

  /** Whether `given` is the secret behind the stored hash. Refuses with `overloaded` where too many wait. */
  async verify(given: string, stored: string, at: number): Promise<boolean> {
    if (Buffer.byteLength(given) > SECRET_MAX_BYTES) return false
    // A keyed digest as the key of a map: what its timing tells is of no use without the key.
    const digest = this.#digest(`${stored}\n${given}`).toString('base64')
    if (at < (this.#known.get(digest) ?? 0)) return true
    if (this.#waiting > WAITING) throw new Refusal('overloaded', { headers: { 'retry-after': '1' } })
    this.#waiting += 1
    const turn = this.#line.then(() => verifySecret(given, stored))
    this.#line = turn.catch(() => false)
    const held = await turn.finally(() => {
      this.#waiting -= 1
    })
    if (held) this.#remember(digest, at)
    return held
  }

  /** Compares in constant time, whatever the lengths. */
  same(given: string, expected: string): boolean {
    return timingSafeEqual(this.#digest(given), this.#digest(expected))
  }

  #remember(digest: string, at: number): void {
    if (this.#known.size >= MOST) this.#known.clear()
    this.#known.set(digest, at + REMEMBERED_MS)
  }

  #digest(text: string): Buffer {
    return createHmac('sha256', this.#key).update(text).digest()
  }
}
