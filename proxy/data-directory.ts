import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Authority } from '../certs/authority/authority.ts'
import { openAuthority } from '../certs/authority/files.ts'
import { readPrivate, writePrivate } from '../certs/authority/key-store.ts'
import { type Ledger, openLedger } from '../db/audit/ledger.ts'
import type { Database } from '../db/database.ts'
import { openDatabase } from '../db/engine.ts'
import { countPrincipals } from '../db/principals/read.ts'
import { readSetting, type SettingKey, writeSetting } from '../db/settings.ts'
import { copyingShown } from './prepare-directory.ts'
import type { Settings } from './settings.ts'
import { fetchAuthority, publishAuthority } from './shared-authority.ts'
import { VERSION } from './version.ts'

/**
 * The opened contents of the data directory: database, ledger, CA and passphrase. They stay the same while
 * configurations come and go.
 */
export interface DataDirectory {
  readonly settings: Settings
  readonly database: Database
  readonly ledger: Ledger
  readonly authority: Authority
  readonly passphrase: string
  /** The things that this start has made, in words for the operator. */
  readonly made: readonly string[]
  readonly close: () => Promise<void>
}

/**
 * Opens the data directory, making what is missing: the directory (0700), the passphrase, the organisation's
 * CA, the database. Throws one sentence for the operator where something is there and cannot be trusted or
 * read. The caller must hold the directory's lease (`openControl`). `share`: makes of the database one that workers
 * share.
 */
export async function openDataDirectory(
  settings: Settings,
  queueLimit: number,
  at: number,
  share = (database: Database): Database => database,
): Promise<DataDirectory> {
  const made: string[] = []
  const database = share(await openDatabase(settings.databaseUrl, copyingShown()))
  let ledger: Ledger | null = null
  const close = async (): Promise<void> => {
    await ledger?.close()
    await database.close()
  }
  try {
    const passphrase = await passphraseOf(settings, database, made)
    const opened = await openLedger({ database, version: VERSION, queueLimit })
    ledger = opened
    const authority = await database.alone(async () => {
      const found = await authorityOf({ settings, database, ledger: opened, passphrase, made, at })
      await fixIdentity(database, opened, settings, at)
      return found
    })
    await exportRoot(settings.dataDir, authority.rootPem)
    return { settings, database, ledger, authority, passphrase, made, close }
  } catch (error) {
    await close()
    throw error
  }
}

/** Writes the certificate that clients trust, where it is not there already: somebody may be reading it. */
async function exportRoot(dataDir: string, pem: string): Promise<void> {
  const path = join(dataDir, 'org-ca.crt')
  if ((await readFile(path, 'utf8').catch(() => '')) !== pem) await writeFile(path, pem, { mode: 0o644 })
}

interface Opening extends Pick<DataDirectory, 'settings' | 'database' | 'ledger' | 'passphrase'> {
  readonly made: string[]
  readonly at: number
}

async function authorityOf(opening: Opening): Promise<Authority> {
  const { settings, database, ledger, passphrase, made, at } = opening
  const { dataDir, org: organisation, trustDomain } = settings
  const directory = join(dataDir, 'ca')
  const shared = database.engine === 'postgres'
  const held = shared && (await fetchAuthority(database, directory))
  // A second CA beside the certificates of a lost one would lock every agent out, one expiry after another.
  if (!existsSync(join(directory, 'root.crt')) && (await anyPrincipal(database))) {
    throw new Error(
      `there are principals, but the CA that certified them is not in ${directory}: restore it from a backup`,
    )
  }
  const { authority, created } = await openAuthority({ directory, passphrase, organisation, trustDomain, at })
  if (created) made.push(`the organisation's CA in ${directory} (keys sealed)`)
  if (shared && !held) await publishAuthority(database, ledger, directory, at)
  return authority
}

async function passphraseOf(
  { keyPassphrase, dataDir }: Settings,
  { engine }: Database,
  made: string[],
): Promise<string> {
  if (keyPassphrase !== null) return keyPassphrase
  if (engine === 'postgres') {
    throw new Error(
      'MCP_PROXY_KEY_PASSPHRASE must be set: every process on a PostgreSQL database unseals the same keys by it',
    )
  }
  const path = join(dataDir, 'key-passphrase')
  try {
    return (await readPrivate(path)).trim()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
  if (existsSync(join(dataDir, 'ca', 'root.key.sealed'))) {
    throw new Error(
      `the CA is sealed, but its passphrase is not in ${path}: restore it, or set MCP_PROXY_KEY_PASSPHRASE`,
    )
  }
  const passphrase = randomBytes(32).toString('base64url')
  await writePrivate(path, `${passphrase}\n`)
  made.push(`a random passphrase in ${path} (back it up: it unseals the CA)`)
  return passphrase
}

// Ids and certificates carry both names: with principals in the database they can no longer change
// (docs/protocol.md#settings).
async function fixIdentity(
  database: Database,
  ledger: Ledger,
  settings: Settings,
  at: number,
): Promise<void> {
  const identity: readonly (readonly [SettingKey, string, string])[] = [
    ['organisation', settings.org, 'MCP_PROXY_ORG'],
    ['trust_domain', settings.trustDomain, 'MCP_PROXY_TRUST_DOMAIN'],
  ]
  for (const [key, value, variable] of identity) {
    const stored = await readSetting(database, key)
    if (stored === value) continue
    if (stored !== undefined && (await anyPrincipal(database))) {
      throw new Error(
        `${variable} is ${value}, but this data directory has principals of ${stored}: it cannot change`,
      )
    }
    await ledger.commit({ statements: [writeSetting(database, key, value, at)], entries: [] })
  }
}

async function anyPrincipal(database: Database): Promise<boolean> {
  const counts = await Promise.all(
    (['agent', 'user', 'workload'] as const).map((type) => countPrincipals(database, type)),
  )
  return counts.some((count) => count > 0)
}
