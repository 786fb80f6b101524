import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { Arrival, Plugin } from './plugin.ts'
import { Refusal } from './refusal.ts'
import { SECRET_MAX_BYTES, verifySecret } from './secret-hash.ts'
import { Throttle } from './throttle.ts'

/** Who is administering, and by which door. */
export interface Actor {
  readonly id: 'admin'
  readonly via: 'admin_api' | 'control_socket'
}

export interface SecretSource {
  /** The stored bcrypt (or argon2id) hash, or the empty string before one was set. Asked on every request. */
  readonly storedHash: () => Promise<string>
  /** `MCP_PROXY_ADMIN_SECRET`: consulted only while the stored hash is empty (spec §5.1). */
  readonly environment: string
}

/** How long a verified secret is remembered, as a keyed digest. ms. A rotation ends it at once: the key includes the hash. */
const REMEMBERED_MS = 300_000
/** Verifications waiting behind the one that runs. Past it: 503, so that guesses cannot occupy the thread pool (SECURITY T15). */
const WAITING = 4

/**
 * The operator's secret in `X-Admin-Secret` (spec §5.1). Missing and wrong are the same refusal, `admin_secret_invalid`;
 * an address with ten failures in a minute is refused with `admin_throttled` before anything is compared.
 * At most one bcrypt verification runs at a time. A verified secret is remembered for five minutes.
 */
export function adminSecret(source: SecretSource): Plugin<Arrival, { actor: Actor }> {
  const throttle = new Throttle()
  const verifier = new Verifier()
  return {
    name: 'admin-secret',
    needs: [],
    gives: ['actor'],
    admit: async ({ headers, remoteAddress, at }) => {
      const wait = throttle.waitS(remoteAddress, at)
      if (wait > 0) throw new Refusal('admin_throttled', { headers: { 'retry-after': String(wait) } })
      const secret = headers['x-admin-secret']
      const given = typeof secret === 'string' ? secret : ''
      if (given !== '' && (await matches(given, source, verifier, at))) return { actor: ADMIN }
      throttle.failed(remoteAddress, at)
      throw new Refusal('admin_secret_invalid')
    },
  }
}

const ADMIN: Actor = { id: 'admin', via: 'admin_api' }

async function matches(
  given: string,
  source: SecretSource,
  verifier: Verifier,
  at: number,
): Promise<boolean> {
  if (Buffer.byteLength(given) > SECRET_MAX_BYTES) return false
  const stored = await source.storedHash()
  if (stored !== '') return verifier.verify(given, stored, at)
  if (source.environment !== '') return verifier.same(given, source.environment)
  return false
}

/** Runs one verification at a time and remembers the last one that held. Owns its key; nothing of it is stored. */
class Verifier {
  readonly #key = randomBytes(32)
  #known: { digest: Buffer; until: number } | null = null
  #line: Promise<unknown> = Promise.resolve()
  #waiting = 0

  async verify(given: string, stored: string, at: number): Promise<boolean> {
    const digest = this.#digest(`${stored}\n${given}`)
    if (this.#known && at < this.#known.until && timingSafeEqual(this.#known.digest, digest)) return true
    if (this.#waiting > WAITING) throw new Refusal('overloaded', { headers: { 'retry-after': '1' } })
    this.#waiting += 1
    const turn = this.#line.then(() => verifySecret(given, stored))
    this.#line = turn.catch(() => false)
    const held = await turn.finally(() => {
      this.#waiting -= 1
    })
    if (held) this.#known = { digest, until: at + REMEMBERED_MS }
    return held
  }

  /** Compares in constant time, whatever the lengths. */
  same(given: string, expected: string): boolean {
    return timingSafeEqual(this.#digest(given), this.#digest(expected))
  }

  #digest(text: string): Buffer {
    return createHmac('sha256', this.#key).update(text).digest()
  }
}

/** The door of the local control socket: the file's mode (0600, in a 0700 directory) has already said who may. */
export const localOperator: Plugin<Arrival, { actor: Actor }> = {
  name: 'local-operator',
  needs: [],
  gives: ['actor'],
  admit: () => ({ actor: { id: 'admin', via: 'control_socket' } }),
}
