import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { openAuthority } from '../../certs/authority/files.ts'
import { type OrganisationAuthority, withRotation } from '../../certs/authority/rotation.ts'
import type { Database } from '../../db/database.ts'
import { openDatabase } from '../../db/engine.ts'
import { type Ledger, openLedger } from '../../db/ledger/record/ledger.ts'
import { isAnythingIssued } from '../../db/principals/issued.ts'
import { readSetting } from '../../db/settings.ts'
import { type OrganisationNames, readNames, storeNames } from './names.ts'
import { openPassphrase } from './passphrase.ts'
import { copyProgressReporter } from './prepare-directory.ts'
import type { Settings } from './settings.ts'
import {
  fetchAuthority,
  followResealedAuthority,
  publishAuthority,
  readSharedAuthority,
} from './shared-authority.ts'
import { VERSION } from './version.ts'

/**
 * The opened contents of the data directory: database, ledger, CA and passphrase. They stay the same while
 * configurations come and go; CA and names until {@link DataDirectory.follow} finds others.
 */
export interface DataDirectory {
  readonly settings: Settings
  readonly database: Database
  readonly ledger: Ledger
  readonly authority: OrganisationAuthority
  /** The names that the CA is of. */
  readonly names: OrganisationNames
  readonly passphrase: string
  /** The things that this start has made, in words for the operator. */
  readonly made: readonly string[]
  /** Updates `authority` and `names` from the database. `at`: ms since the epoch. */
  readonly follow: (at: number) => Promise<void>
  readonly close: () => Promise<void>
}

/**
 * Opens the data directory, making what is missing: the directory (0700), the passphrase, the organisation's
 * CA, the database. Throws one sentence for the operator if something is there and cannot be trusted or read.
 * The caller must hold the directory's lease (`openControl`).
 */
export async function openDataDirectory(
  settings: Settings,
  queueLimit: number,
  at: number,
): Promise<DataDirectory> {
  const made: string[] = []
  const database = await openDatabase(settings.databaseUrl, copyProgressReporter())
  let ledger: Ledger | null = null
  const close = async (): Promise<void> => {
    await ledger?.close()
    await database.close()
  }
  try {
    const passphrase = await openPassphrase(settings, database, made)
    const opened = await openLedger({ database, version: VERSION, queueLimit })
    ledger = opened
    const opening = { settings, database, ledger: opened, passphrase, made }
    let held = await database.alone(async () => {
      const found = await openNamedAuthority({ ...opening, at })
      await storeNames(database, opened, found.names, at)
      return found
    })
    await exportRoots(settings.dataDir, held.authority.rootsPem)
    const follow = async (now: number): Promise<void> => {
      const stored = certificatesIn(await readSetting(database, 'authority'))
      if (
        stored === certificatesIn(held.stored) &&
        isDeepStrictEqual(await readNames(database, settings), held.names)
      )
        return
      held = await database.alone(() => openNamedAuthority({ ...opening, at: now }))
      await exportRoots(settings.dataDir, held.authority.rootsPem)
    }
    return {
      settings,
      database,
      ledger,
      passphrase,
      made,
      follow,
      close,
      get authority() {
        return held.authority
      },
      get names() {
        return held.names
      },
    }
  } catch (error) {
    await close()
    throw error
  }
}

/** Writes the certificates that clients trust, if they are not there already: somebody may be reading them. */
async function exportRoots(dataDir: string, pem: string): Promise<void> {
  const path = join(dataDir, 'org-ca.crt')
  if ((await readFile(path, 'utf8').catch(() => '')) !== pem) await writeFile(path, pem, { mode: 0o644 })
}

/** The text of the CAs without their keys, which are sealed anew when the passphrase changes. */
const certificatesIn = (stored: string | undefined): string | undefined =>
  stored?.replaceAll(/sallyport-sealed\.[\w.-]+/g, '')

interface DirectoryOpening extends Pick<DataDirectory, 'settings' | 'database' | 'ledger' | 'passphrase'> {
  readonly made: string[]
  readonly at: number
}

/** The CA, and the names that it is of. */
interface NamedAuthority extends Pick<DataDirectory, 'authority' | 'names'> {
  /** The setting that it was opened from; undefined if the database holds none. */
  readonly stored: string | undefined
}

async function openNamedAuthority(opening: DirectoryOpening): Promise<NamedAuthority> {
  const { settings, database, ledger, passphrase, made, at } = opening
  const directory = join(settings.dataDir, 'ca')
  const names = await readNames(database, settings)
  const held = await readSharedAuthority(database)
  if (held) await fetchAuthority(held.stored, directory, passphrase)
  await followResealedAuthority(database, directory, passphrase)
  // A second CA next to the certificates of a lost one would lock every agent out, one expiry after another.
  if (!existsSync(join(directory, 'root.crt')) && (await isAnythingIssued(database))) {
    throw new Error(
      `there are principals, but the CA that certified them is not in ${directory}: restore it from a backup`,
    )
  }
  const { authority, created } = await openAuthority({ directory, passphrase, ...names, at })
  if (created) made.push(`the organisation's CA in ${directory} (keys sealed)`)
  if (database.engine === 'postgres' && !held) await publishAuthority(database, ledger, directory, at)
  return {
    authority: await withRotation(authority, held?.stored ?? {}, passphrase),
    names,
    stored: held?.text ?? (await readSetting(database, 'authority')),
  }
}
