import { hash } from 'node:crypto'
import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { NewAuthorityOptions } from '../../certs/authority/authority.ts'
import { AUTHORITY_FILES, sealedAuthority } from '../../certs/authority/files.ts'
import { unseal } from '../../certs/authority/key-store.ts'
import {
  commitFiles,
  completeStagedFiles,
  missingIn,
  replaceFiles,
} from '../../certs/authority/staged-files.ts'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { insertSetting, readSetting, writeSetting } from '../../db/settings.ts'
import { isObject } from '../../db/support/json.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'

// If many processes share a database they share the organisation's CA: its files are there too, the keys
// sealed as they are on the disk, and each data directory has a copy. So is a CA that was made again, on
// either engine: one transaction stores it with the names in it, and the next start mends the files that a
// crash leaves on the disk.

/**
 * Puts the CA that the database holds into a directory that has none, or the one that it replaces. Throws one
 * sentence if the directory has yet another one. Returns whether the database holds a CA.
 */
export async function fetchAuthority(database: Database, directory: string): Promise<boolean> {
  const stored = await readSetting(database, 'authority')
  if (stored === undefined) return false
  const files: unknown = JSON.parse(stored)
  const textOf = (name: string): string => (isObject(files) ? String(files[name]) : '')
  const texts = new Map(AUTHORITY_FILES.map((name) => [name, textOf(name)]))
  await completeStagedFiles(directory, AUTHORITY_FILES)
  const missing = await missingIn(directory, AUTHORITY_FILES)
  if (missing.length === AUTHORITY_FILES.length) {
    await mkdir(directory, { recursive: true, mode: 0o700 })
    await commitFiles(directory, texts)
    return true
  }
  const root = await readFile(join(directory, 'root.crt'), 'utf8')
  if (root === textOf('root.crt')) return true
  if (digestOf(root) !== textOf(REPLACES)) {
    throw new Error(
      `the CA in ${directory} is not the one that the database holds: move it away, and start again`,
    )
  }
  await replaceFiles(directory, texts)
  return true
}

/** The member that says, in addition to the files, which CA they replace: the SHA-256 of its `root.crt`. */
const REPLACES = 'replaces'

const digestOf = (rootPem: string): string => hash('sha256', rootPem)

/** A CA that is made but not stored. */
export interface MadeAuthority {
  readonly rootPem: string
  readonly statement: LedgerStatement
}

/** Makes a CA in place of the one of this root, and the statement that stores it. Writes nothing. */
export async function remakeAuthority(
  database: Database,
  beforePem: string,
  options: NewAuthorityOptions & { readonly passphrase: string },
): Promise<MadeAuthority> {
  const texts = await sealedAuthority(options)
  const value = JSON.stringify({ ...Object.fromEntries(texts), [REPLACES]: digestOf(beforePem) })
  const statement = writeSetting(database, 'authority', value, options.at)
  return { rootPem: texts.get('root.crt') ?? '', statement }
}

/** Makes the function that makes a CA of other names in place of the one of this root. */
export const authorityRemaker =
  (database: Database, beforePem: string, passphrase: string) =>
  (names: Omit<NewAuthorityOptions, 'at'>, at: number): Promise<MadeAuthority> =>
    remakeAuthority(database, beforePem, { ...names, passphrase, at })

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
  await ledger.commit({ statements: [insertSetting(database, 'authority', value, at)], entries: [] })
}

/**
 * Puts the keys of the CA that the database holds into a directory that has the same CA sealed by another
 * passphrase. Throws, and changes nothing, if this is not the passphrase of the database.
 */
export async function followResealedAuthority(
  database: Database,
  directory: string,
  passphrase: string,
): Promise<void> {
  const stored: unknown = JSON.parse((await readSetting(database, 'authority')) ?? 'null')
  if (!isObject(stored) || (await missingIn(directory, ['root.crt'])).length > 0) return
  await completeStagedFiles(directory, AUTHORITY_FILES)
  const texts = new Map(AUTHORITY_FILES.map((name) => [name, String(stored[name])]))
  const present = await Promise.all(
    AUTHORITY_FILES.map((name) => readFile(join(directory, name), 'utf8').catch(() => '')),
  )
  const isSame = AUTHORITY_FILES.every((name, at) => present[at]?.trim() === texts.get(name)?.trim())
  if (isSame || present[AUTHORITY_FILES.indexOf('root.crt')] !== texts.get('root.crt')) return
  unseal(texts.get('intermediate.key.sealed') ?? '', passphrase)
  await replaceFiles(directory, texts)
}
