import { createHmac } from 'node:crypto'
import type { Principal } from '../../../plugins/facts.ts'

export type IdempotencyKeys = (principal: Principal, key: string) => string

/**
 * Makes each principal's idempotency keys its own (docs/threats.md#h11): a provider knows this gateway's
 * account alone. The same key of the same principal stays the same, at every replica and after a restart.
 * `secret`: at least 32 random bytes that all replicas share.
 */
export function idempotencyKeys(secret: Buffer): IdempotencyKeys {
  return ({ type, id }, key) =>
    createHmac('sha256', secret)
      .update(JSON.stringify([type, id, key]))
      .digest('base64url')
}
