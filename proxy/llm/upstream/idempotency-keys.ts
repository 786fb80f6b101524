import { createHmac } from 'node:crypto'
import type { Principal } from '../../../plugins/facts.ts'

/** Returns the idempotency key that a provider gets in place of a caller's own. */
export type IdempotencyKeys = (principal: Principal, key: string) => string

/**
 * Makes each principal's idempotency keys its own (docs/threats.md#h11): a provider knows this gateway's
 * account alone, so it would give one principal the answer to another under the same key. The same key of the
 * same principal stays the same, for retries, at every replica and after a restart. `secret`: at least 32
 * random bytes that all replicas share.
 */
export function idempotencyKeys(secret: Buffer): IdempotencyKeys {
  return ({ type, id }, key) =>
    createHmac('sha256', secret)
      .update(JSON.stringify([type, id, key]))
      .digest('base64url')
}
