import type { IncomingHttpHeaders } from 'node:http'
import type { ApiKey } from '../../db/principals/api-keys.ts'
import type { Principal } from '../facts.ts'
import type { Arrival, Plugin } from '../plugin.ts'
import { Refusal } from '../refusal.ts'
import { FailureThrottle } from './throttle.ts'
import { SecretVerifier } from './verifier.ts'

/** `sk_<id>_<secret>`: 64 bits to look it up by, 256 to prove it. No vendor's key has this shape. */
const SHAPE = /^sk_([0-9a-f]{16})_[A-Za-z0-9_-]{43}$/
const BEARER = /^bearer +(sk_\S+)$/i

/**
 * Checks an API key of ours (spec §5.3), if one comes with the certificate: as `Authorization: Bearer` or
 * `x-api-key`. It never stands in for the certificate, and it must be this principal's own. Refuses with
 * `token_invalid`. A key of another shape is a vendor's, and is ignored. One guess at a time, and after ten
 * in a minute no other is looked at. A key that has held passes before that.
 */
export function apiKeyCheck(
  find: (keyId: string) => Promise<ApiKey | undefined>,
  throttle = new FailureThrottle(),
): Plugin<Arrival & { principal: Principal }, object> {
  const verifier = new SecretVerifier(1)
  const asked =
    (question: (key: string, principal: Principal) => Promise<void>) =>
    ({ headers, principal }: Arrival & { principal: Principal }) => {
      const keys = apiKeysOf(headers)
      if (keys.length === 0) return NOTHING
      return Promise.all(keys.map((key) => question(key, principal))).then(() => NOTHING)
    }
  return {
    name: 'api_key',
    admit: asked((key, principal) => check(key, principal, { find, verifier, throttle })),
    // The hash of a key is never replaced: one that has ended is not found any more.
    still: asked(async (key, principal) => void (await ownKey(key, principal, find))),
  }
}

/** Returns whether a header's value is a key of ours, which must not leave for a provider. */
export const isApiKey = (value: string): boolean => SHAPE.test(value)

const NOTHING = {}
const NO_KEYS: readonly string[] = []

function apiKeysOf({ authorization = '', 'x-api-key': header }: IncomingHttpHeaders): readonly string[] {
  const bearer = BEARER.exec(authorization)?.[1]
  // Nearly every call's.
  if (bearer === undefined && header === undefined) return NO_KEYS
  return [bearer ?? '', String(header ?? '')].filter(isApiKey)
}

interface ApiKeyDependencies {
  readonly find: (keyId: string) => Promise<ApiKey | undefined>
  readonly verifier: SecretVerifier
  /** Counts failures by principal. */
  readonly throttle: FailureThrottle
}

/** Finds the stored key that a text names. Refuses with `token_invalid` if it is not this principal's. */
async function ownKey(key: string, principal: Principal, find: ApiKeyDependencies['find']): Promise<ApiKey> {
  const found = await find(SHAPE.exec(key)?.[1] ?? '')
  const own = found?.principalId === principal.id && found.type === principal.type
  if (!found || !own) throw new Refusal('token_invalid')
  return found
}

async function check(
  key: string,
  principal: Principal,
  { find, verifier, throttle }: ApiKeyDependencies,
): Promise<void> {
  const found = await ownKey(key, principal, find)
  if (verifier.remembers(key, found.keyHash)) return
  if (throttle.waitS(principal.id) > 0) throw new Refusal('token_invalid')
  if (await verifier.verify(key, found.keyHash)) return
  throttle.recordFailure(principal.id)
  throw new Refusal('token_invalid')
}
