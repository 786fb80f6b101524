import { hash, randomBytes } from 'node:crypto'
import { insertApiKey } from '../../../db/principals/api-keys.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import { hashSecret } from '../../../plugins/secrets/hash.ts'
import type { AdminCaller, AdminContext } from '../operation/context.ts'
import { AGENT, printPrincipalId } from '../operation/kinds.ts'

/** Makes `sk_<id>_<secret>`: shown once, kept as a hash, found by its id (docs/protocol.md#principals). */
export async function newApiKey(
  { database, organisation }: AdminContext,
  { at }: AdminCaller,
  name: string,
): Promise<{
  readonly apiKey: string
  /** The look-up id of the key, and the digest of the stored hash. */
  readonly digest: readonly [string, string]
  readonly statements: readonly LedgerStatement[]
}> {
  const keyId = randomBytes(8).toString('hex')
  const apiKey = `sk_${keyId}_${randomBytes(32).toString('base64url')}`
  const principalId = printPrincipalId(AGENT, organisation, name)
  const keyHash = await hashSecret(apiKey)
  return {
    apiKey,
    digest: [keyId, hash('sha256', keyHash)],
    statements: [insertApiKey(database, { keyId, type: 'agent', principalId, keyHash }, at)],
  }
}
