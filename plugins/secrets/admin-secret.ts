import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { Throttle } from './throttle.ts'
import { SecretVerifier } from './verifier.ts'

/** The operator at work, and the credential of the operator. */
export interface Actor {
  readonly id: 'admin'
  readonly via: 'admin_api' | 'control_socket' | 'setup_code'
}

export interface SecretSource {
  /** The stored bcrypt (or argon2id) hash, or the empty string before one was set. Read on every request. */
  readonly storedHash: () => Promise<string>
  /** `MCP_PROXY_ADMIN_SECRET`: consulted only while the stored hash is empty (spec §5.1). */
  readonly environment: string
}

/**
 * The operator's secret in `X-Admin-Secret` (spec §5.1). Missing and wrong are the same refusal,
 * `admin_secret_invalid`; an address with ten failures in a minute is refused with `admin_throttled` before
 * anything is compared. At most one bcrypt verification runs at a time. A verified secret is remembered for
 * five minutes.
 */
export function adminSecret(source: SecretSource): Plugin<Arrival, { actor: Actor }> {
  const throttle = new Throttle()
  const verifier = new SecretVerifier()
  return {
    name: 'admin_secret',
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

const ADMIN: Actor = { id: 'admin', via: 'admin_api' }

async function matches(
  given: string,
  source: SecretSource,
  verifier: SecretVerifier,
  at: number,
): Promise<boolean> {
  const stored = await source.storedHash()
  if (stored !== '') return verifier.verify(given, stored, at)
  if (source.environment !== '') return verifier.same(given, source.environment)
  return false
}

/**
 * Admits every caller on the local control socket: the file's mode (0600, in a 0700 directory) decides who
 * reaches it.
 */
export const localOperator: Plugin<Arrival, { actor: Actor }> = {
  name: 'local_operator',
  admit: () => ({ actor: { id: 'admin', via: 'control_socket' } }),
}
