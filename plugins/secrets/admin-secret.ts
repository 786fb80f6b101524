import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { senderOf, Throttle } from './throttle.ts'
import { SecretVerifier } from './verifier.ts'

/** The operator at work, and the credential of the operator. */
export interface Actor {
  readonly id: 'admin'
  readonly via: 'secret' | 'socket' | 'setup_code'
}

export interface SecretSource {
  /** The stored bcrypt (or argon2id) hash, or the empty string before one was set. Read on every request. */
  readonly storedHash: () => Promise<string>
  /** `MCP_PROXY_ADMIN_SECRET`: consulted only while the stored hash is empty (spec §5.1). */
  readonly environment: string
}

/**
 * Checks the operator's secret in `X-Admin-Secret` (spec §5.1). Missing and wrong are the same refusal,
 * `admin_secret_invalid`; only wrong ones count. A sender (an address, of IPv6 its /64) with ten wrong ones in
 * a minute is refused with `admin_throttled`, unverified, and its connection closed: each further guess costs
 * it a handshake. At most one bcrypt verification runs at a time. A secret that has held passes before all
 * that, until the stored hash changes: nobody's guesses keep the operator out.
 */
export function adminSecret(
  source: SecretSource,
  throttle = new Throttle(),
): Plugin<Arrival, { actor: Actor }> {
  const verifier = new SecretVerifier()
  return {
    name: 'admin_secret',
    admit: async ({ headers, remoteAddress }) => {
      const { 'x-admin-secret': secret } = headers
      if (typeof secret !== 'string' || secret === '') throw new Refusal('admin_secret_invalid')
      const stored = await source.storedHash()
      if (verifier.remembers(secret, stored)) return { actor: ADMIN }
      const sender = senderOf(remoteAddress)
      const wait = throttle.waitS(sender)
      if (wait > 0) throw throttled(wait)
      if (await matches(secret, stored, source, verifier)) return { actor: ADMIN }
      throttle.failed(sender)
      throw new Refusal('admin_secret_invalid')
    },
  }
}

const throttled = (waitS: number): Refusal =>
  new Refusal('admin_throttled', { headers: { 'retry-after': String(waitS), connection: 'close' } })

/**
 * Asks for the secret once more, behind the body: one that was rotated while it came is worth nothing. Gives
 * nothing.
 */
export const stillOperator = ({
  name,
  admit,
}: Plugin<Arrival, { actor: Actor }>): Plugin<Arrival, object> => ({
  name,
  admit: async (arrival) => {
    await admit(arrival)
    return {}
  },
})

const ADMIN: Actor = { id: 'admin', via: 'secret' }

async function matches(
  given: string,
  stored: string,
  { environment }: SecretSource,
  verifier: SecretVerifier,
): Promise<boolean> {
  if (stored !== '') return verifier.verify(given, stored)
  return environment !== '' && verifier.same(given, environment)
}

/**
 * Admits every caller on the local control socket: the file's mode (0600, in a 0700 directory) decides who
 * reaches it.
 */
export const localOperator: Plugin<Arrival, { actor: Actor }> = {
  name: 'local_operator',
  admit: () => ({ actor: { id: 'admin', via: 'socket' } }),
}
