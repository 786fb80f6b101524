import { randomBytes } from 'node:crypto'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { readSetting, writeSetting } from '../../db/settings.ts'

/**
 * Opens the secret behind nonces and login challenges. It is in the database, so that every replica hands out
 * and accepts the same, also after a restart; the first boot makes it.
 */
export async function openNonceSecret(
  database: Database,
  ledger: Pick<Ledger, 'commit'>,
  at: number,
): Promise<Buffer> {
  const stored = await readSetting(database, 'dpop_nonce_secret')
  if (stored !== undefined) return Buffer.from(stored, 'base64url')
  const secret = randomBytes(32)
  const statements = [writeSetting(database, 'dpop_nonce_secret', secret.toString('base64url'), at)]
  await ledger.commit({ statements, entries: [] })
  return secret
}
