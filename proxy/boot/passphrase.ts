import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { rename } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import {
  nullIfMissing,
  readPrivateFile,
  syncFolder,
  unseal,
  writePrivateFile,
} from '../../certs/authority/key-store.ts'
import type { Database } from '../../db/database.ts'
import { readSetting } from '../../db/settings.ts'
import type { Settings } from './settings.ts'

/** The file of the passphrase that the first start makes, if no setting gives one. */
export const passphraseFile = ({ dataDir }: Pick<Settings, 'dataDir'>): string =>
  join(dataDir, 'key-passphrase')

/** The next passphrase, while a rotation is under way: it counts from the moment the database opens with it. */
export const nextPassphraseFile = (settings: Pick<Settings, 'dataDir'>): string =>
  `${passphraseFile(settings)}.next`

/**
 * Returns the passphrase: the setting's, or that of the data directory, which is made if nothing is sealed yet.
 * Completes a rotation that a crash has interrupted behind its transaction. `made`: gets a sentence.
 */
export async function openPassphrase(
  settings: Pick<Settings, 'keyPassphrase' | 'dataDir'>,
  database: Database,
  made: string[],
): Promise<string> {
  const { keyPassphrase, dataDir } = settings
  if (keyPassphrase !== null) return keyPassphrase
  if (database.engine === 'postgres') {
    throw new Error(
      'MCP_PROXY_KEY_PASSPHRASE must be set: every process on a PostgreSQL database unseals the same keys by it',
    )
  }
  const path = passphraseFile(settings)
  const next = await readPassphrase(nextPassphraseFile(settings))
  if (next !== null && (await isSealedBy(database, next))) {
    await adoptNextPassphrase(settings)
    return next
  }
  const found = await readPassphrase(path)
  if (found !== null) return found
  if (existsSync(join(dataDir, 'ca', 'root.key.sealed'))) {
    throw new Error(
      `the CA is sealed, but its passphrase is not in ${path}: restore it, or set MCP_PROXY_KEY_PASSPHRASE`,
    )
  }
  const passphrase = randomPassphrase()
  await writePrivateFile(path, `${passphrase}\n`)
  made.push(`a random passphrase in ${path} (back it up: it unseals the CA)`)
  return passphrase
}

export const randomPassphrase = (): string => randomBytes(32).toString('base64url')

/** Reads a file of a passphrase; null if there is none. */
export const readPassphrase = async (path: string): Promise<string | null> =>
  (await nullIfMissing(readPrivateFile(path)))?.trim() ?? null

/** Tells whether the database is sealed by a passphrase: one transaction seals all of it. */
export async function isSealedBy(database: Database, passphrase: string): Promise<boolean> {
  const sealed = await readSetting(database, 'subject_key_sealer')
  if (sealed === undefined || passphrase === '') return false
  try {
    unseal(sealed, passphrase)
    return true
  } catch {
    return false
  }
}

/** Makes the next passphrase the one of the data directory. */
export async function adoptNextPassphrase(settings: Pick<Settings, 'dataDir'>): Promise<void> {
  const path = passphraseFile(settings)
  await rename(nextPassphraseFile(settings), path)
  await syncFolder(dirname(path))
}
