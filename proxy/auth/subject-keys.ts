import { randomBytes } from 'node:crypto'
import { seal, unseal } from '../../certs/authority/key-store.ts'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { readSetting, writeSetting } from '../../db/settings.ts'
import { SubjectKeys } from '../../plugins/pin/subject-keys.ts'

/**
 * Opens the keys of commitments. The key that seals them is in the database, sealed with the passphrase of
 * the data directory; the first boot makes it. Throws if the passphrase is another one.
 */
export async function openSubjectKeys(
  database: Database,
  ledger: Pick<Ledger, 'commit'>,
  passphrase: string,
  at: number,
): Promise<SubjectKeys> {
  const stored = await readSetting(database, 'subject_key_sealer')
  if (stored !== undefined)
    return new SubjectKeys(database, Buffer.from(unseal(stored, passphrase), 'base64'))
  const sealer = randomBytes(32)
  const sealed = seal(sealer.toString('base64'), passphrase)
  await ledger.commit({
    statements: [writeSetting(database, 'subject_key_sealer', sealed, at)],
    entries: [],
  })
  return new SubjectKeys(database, sealer)
}
