import type { RowAssertion } from '../../db/support/statement.ts'
import { type ActorAndHolder, unstoredOperator } from '../operators/actor.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import type { RecognisedSenders } from './recognised-senders.ts'
import { FailureThrottle, senderOf } from './throttle.ts'
import { SecretVerifier } from './verifier.ts'

export interface StoredSecret {
  /** bcrypt or argon2id; the empty string before one was set. */
  readonly hash: string
  /** True: no secret opens anything, the environment's neither, until the machine itself says otherwise. */
  readonly disabled: boolean
}

export interface AdminSecretSource {
  /** Asked on every request. */
  readonly stored: () => Promise<StoredSecret>
  /** `MCP_PROXY_ADMIN_SECRET`: consulted only while the stored hash is empty (spec §5.1). */
  readonly environment: string
  /** Asserts that the secret is the one of this hash, and not disabled. */
  readonly unchanged: (hash: string) => RowAssertion
  /** The senders that have come with the right secret of late. Absent: none is recognised. */
  readonly recognised?: Pick<RecognisedSenders, 'has' | 'note'>
  /** Told of each request that the secret opens. */
  readonly onUse: (arrival: Arrival) => void
}

/**
 * Checks the operator's secret in `X-Admin-Secret` (spec §5.1). Missing and wrong are the same refusal,
 * `admin_secret_invalid`; only wrong ones count. A sender (an address, of IPv6 its /64) with ten wrong ones
 * in a minute is refused with `admin_throttled`, unverified, and its connection closed. At most one bcrypt
 * verification runs at a time, and one more for recognised senders. A secret that has held passes before all
 * that, until the stored hash changes. While the secret is disabled every one is wrong, and none is verified
 * or counted.
 */
export function adminSecret(
  source: AdminSecretSource,
  throttle = new FailureThrottle(),
): Plugin<Arrival, ActorAndHolder> {
  const verifier = new SecretVerifier()
  return {
    name: 'admin_secret',
    admit: async (arrival) => {
      const { headers, remoteAddress } = arrival
      const { 'x-admin-secret': secret } = headers
      if (typeof secret !== 'string' || secret === '') throw new Refusal('admin_secret_invalid')
      const stored = await source.stored()
      if (stored.disabled) throw new Refusal('admin_secret_invalid')
      const sender = senderOf(remoteAddress)
      const admitted = (): ActorAndHolder => {
        source.recognised?.note(sender)
        source.onUse(arrival)
        return unstoredOperator('admin', 'secret', [source.unchanged(stored.hash)])
      }
      if (verifier.remembers(secret, stored.hash)) return admitted()
      const wait = throttle.waitS(sender)
      if (wait > 0) throw throttled(wait)
      const recognised = source.recognised?.has(sender) ?? false
      if (await matches(secret, stored.hash, { source, verifier, recognised })) return admitted()
      throttle.recordFailure(sender)
      throw new Refusal('admin_secret_invalid')
    },
    still: async ({ actor }) => {
      const { hash, disabled } = await source.stored()
      if (disabled || !restsOn(actor, source.unchanged(hash))) throw new Refusal('admin_secret_invalid')
      return {}
    },
  }
}

/** Tells whether the credential that let somebody in is the stored one now. */
const restsOn = ({ standing }: ActorAndHolder['actor'], { sql, parameters }: RowAssertion): boolean =>
  standing.some((one) => one.sql === sql && one.parameters.join() === parameters.join())

const throttled = (waitS: number): Refusal =>
  new Refusal('admin_throttled', { headers: { 'retry-after': String(waitS), connection: 'close' } })

interface SecretMatchOptions {
  readonly source: AdminSecretSource
  readonly verifier: SecretVerifier
  /** True: its sender has a line of its own. */
  readonly recognised: boolean
}

async function matches(
  given: string,
  stored: string,
  { source: { environment }, verifier, recognised }: SecretMatchOptions,
): Promise<boolean> {
  if (stored !== '') return verifier.verify(given, stored, recognised)
  return environment !== '' && verifier.same(given, environment)
}

export const hasOperatorSecret =
  (stored: () => Promise<StoredSecret>, environment: string | null) => async (): Promise<boolean> => {
    const { hash, disabled } = await stored()
    return disabled || hash !== '' || environment !== null
  }
