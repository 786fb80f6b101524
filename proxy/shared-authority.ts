import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { AUTHORITY_FILES } from '../certs/authority/files.ts'
import { commitFiles, missingIn } from '../certs/authority/staged-files.ts'
import type { Ledger } from '../db/audit/ledger.ts'
import type { Database } from '../db/database.ts'
import { isObject } from '../db/json.ts'
import { firstSetting, readSetting } from '../db/settings.ts'

// Where many processes share a database they share the organisation's CA: its files lie there too, the keys sealed
// as they are on the disk, and each data directory has a copy.

/**
 * Lays the CA that the database holds into a directory that has none. Throws one sentence where the directory has
 * another one. Returns whether the database holds a CA.
 */
export async function fetchAuthority(database: Database, directory: string): Promise<boolean> {
  const stored = await readSetting(database, 'authority')
  if (stored === undefined) return false
  const files: unknown = JSON.parse(stored)
  const textOf = (name: string): string => (isObject(files) ? String(files[name]) : '')
  const missing = await missingIn(directory, AUTHORITY_FILES)
  if (missing.length === AUTHORITY_FILES.length) {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    await commitFiles(directory, new Map(AUTHORITY_FILES.map((name) => [name, textOf(name)])))
  } else if ((await readFile(join(directory, 'root.crt'), 'utf8')) !== textOf('root.crt')) {
    throw new Error(
      `the CA in ${directory} is not the one that the database holds: move it away, and start again`,
    )
  }
  return true
}

/** Puts the CA of a directory into the database, which has none. `at`: ms since the epoch. */
export async function publishAuthority(
  database: Database,
  ledger: Pick<Ledger, 'commit'>,
  directory: string,
  at: number,
): Promise<void> {
  const texts = await Promise.all(
    AUTHORITY_FILES.map(async (name) => [name, await readFile(join(directory, name), 'utf8')] as const),
  )
  const value = JSON.stringify(Object.fromEntries(texts))
  await ledger.commit({ statements: [firstSetting(database, 'authority', value, at)], entries: [] })
}
