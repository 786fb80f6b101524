import { mkdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { NewAuthorityOptions } from '../../certs/authority/authority.ts'
import { AUTHORITY_FILES, type AuthorityTexts, sealedAuthority } from '../../certs/authority/files.ts'
import { deriveAhead, unseal } from '../../certs/authority/key-store.ts'
import {
  digestsOf,
  openStored,
  type PreparationOptions,
  prepareRotation,
  type StoredAuthority,
  textDigest,
} from '../../certs/authority/rotation.ts'
import {
  commitFiles,
  completeStagedFiles,
  missingIn,
  replaceFiles,
} from '../../certs/authority/staged-files.ts'
import type { Database } from '../../db/database.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { insertSetting, readSetting, replaceSetting, writeSetting } from '../../db/settings.ts'
import { isObject } from '../../db/support/json.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { OrganisationNames } from './names.ts'

// If many processes share a database they share the organisation's CA: its files are there too, the keys
// sealed as they are on the disk, and each data directory has a copy. So is a CA that was made again, or is
// being replaced, on either engine: one transaction stores each step, and the next start mends the files that
// a crash leaves on the disk. Whatever the database holds sealed is a member `*.key.sealed` of one of its CAs.

/** The CAs as they are stored. */
export interface SharedAuthority {
  /** The setting; undefined: the database has none, and the files of the data directory count. */
  readonly text: string | undefined
  readonly stored: StoredAuthority
}

/** Reads the CAs that the database holds; null if it holds none. */
export async function readSharedAuthority(database: Database): Promise<SharedAuthority | null> {
  const text = await readSetting(database, 'authority')
  return text === undefined ? null : { text, stored: parseStored(text) }
}

function parseStored(text: string): StoredAuthority {
  const stored: unknown = JSON.parse(text)
  const isWhole = isObject(stored) && AUTHORITY_FILES.every((name) => typeof stored[name] === 'string')
  if (!isWhole) throw new Error('the CA that the database holds is not whole')
  // Written by this file alone; the certificates and keys in it are checked as they are opened.
  return stored as unknown as StoredAuthority
}

/** Reads the files of a CA in a directory. */
export async function authorityTextsIn(directory: string): Promise<AuthorityTexts> {
  const texts = AUTHORITY_FILES.map(
    async (name) => [name, await readFile(join(directory, name), 'utf8')] as const,
  )
  // Every file of a CA is one of these.
  return Object.fromEntries(await Promise.all(texts)) as AuthorityTexts
}

/**
 * Puts the CA that issues, as the database holds it, into a directory that has none, or one that it replaces.
 * Throws one sentence if the directory has yet another one.
 */
export async function fetchAuthority(
  stored: StoredAuthority,
  directory: string,
  passphrase: string,
): Promise<void> {
  const texts = new Map(AUTHORITY_FILES.map((name) => [name, stored[name]]))
  await completeStagedFiles(directory, AUTHORITY_FILES)
  const missing = await missingIn(directory, AUTHORITY_FILES)
  if (missing.length === AUTHORITY_FILES.length) {
    await openStored(stored, passphrase)
    await mkdir(directory, { recursive: true, mode: 0o700 })
    return commitFiles(directory, texts)
  }
  // Opening it says so.
  if (missing.length > 0) return
  const { 'root.crt': root, 'intermediate.crt': intermediate } = await authorityTextsIn(directory)
  if (root === stored['root.crt'] && intermediate === stored['intermediate.crt']) return
  const replaced = [stored.replaces ?? []].flat()
  if (![root, intermediate].some((pem) => replaced.includes(textDigest(pem)))) {
    throw new Error(
      `the CA in ${directory} is not the one that the database holds: move it away, and start again`,
    )
  }
  await openStored(stored, passphrase)
  await replaceFiles(directory, texts)
}

/** A CA that is made but not stored. */
export interface MadeAuthority {
  readonly rootPem: string
  readonly statements: readonly LedgerStatement[]
}

/**
 * Makes the function that makes a CA of other names in place of the one of this root. It writes nothing, and
 * gives the statements that store it.
 */
export const authorityRemaker =
  (database: Database, beforePem: string, passphrase: string) =>
  async (names: Omit<NewAuthorityOptions, 'at'>, at: number): Promise<MadeAuthority> => {
    const before = await readSharedAuthority(database)
    if (before) await requireCurrent(before.stored, passphrase)
    const { texts } = await sealedAuthority({ ...names, passphrase, at })
    const value = JSON.stringify({ ...texts, replaces: textDigest(beforePem) })
    return {
      rootPem: texts['root.crt'],
      statements: [
        storeAuthority(database, before?.text, value, at),
        writeSetting(database, 'issuing_ca', digestsOf(texts).intermediate_sha256, at),
      ],
    }
  }

/** Refuses with `conflict` what would be sealed with a passphrase that was rotated while this process ran. */
async function requireCurrent(stored: StoredAuthority, passphrase: string): Promise<void> {
  await deriveAhead(stored['intermediate.key.sealed'], passphrase)
  try {
    unseal(stored['intermediate.key.sealed'], passphrase)
  } catch (cause) {
    const message =
      'The passphrase was rotated while this gateway ran. Restart it with the new one, and try again.'
    throw new Refusal('conflict', { cause, message })
  }
}

/** Stores the CAs if they are as they were read: another text changes no row, or is a duplicate. */
const storeAuthority = (
  database: Database,
  before: string | undefined,
  value: string,
  at: number,
): LedgerStatement =>
  before === undefined
    ? insertSetting(database, 'authority', value, at)
    : replaceSetting(database, 'authority', { before, value, at })

/** The CAs of a service, and their next step. */
export class SharedRotation {
  readonly #database: Database
  readonly #directory: string
  readonly #passphrase: string

  constructor(database: Database, directory: string, passphrase: string) {
    this.#database = database
    this.#directory = directory
    this.#passphrase = passphrase
  }

  /** Reads the CAs in use: from the database, or else from the data directory. */
  readonly read = async (): Promise<SharedAuthority> =>
    (await readSharedAuthority(this.#database)) ?? {
      text: undefined,
      stored: await authorityTextsIn(this.#directory),
    }

  /** Makes the CA that comes next. Stores nothing. Throws as `createAuthority` and {@link requireCurrent} do. */
  readonly prepare = async (
    { stored }: SharedAuthority,
    options: OrganisationNames & Pick<PreparationOptions, 'scope' | 'at'>,
  ): Promise<StoredAuthority> => {
    await requireCurrent(stored, this.#passphrase)
    return prepareRotation(stored, { ...options, passphrase: this.#passphrase })
  }

  /**
   * Returns the statements that store a step, if the CAs are still as they were read: another text changes no
   * row, or is a duplicate. From then on the CA that issues issues alone. Refuses as {@link requireCurrent}
   * does: this process could not open what it has stored.
   */
  readonly store = async (
    { text, stored }: SharedAuthority,
    next: StoredAuthority,
    at: number,
  ): Promise<readonly LedgerStatement[]> => {
    await requireCurrent(stored, this.#passphrase)
    const value = JSON.stringify(next)
    const database = this.#database
    return [
      storeAuthority(database, text, value, at),
      writeSetting(database, 'issuing_ca', digestsOf(next).intermediate_sha256, at),
    ]
  }
}

/** Puts the CA of a directory into the database, which has none. `at`: ms since the epoch. */
export async function publishAuthority(
  database: Database,
  ledger: Pick<Ledger, 'commit'>,
  directory: string,
  at: number,
): Promise<void> {
  const value = JSON.stringify(await authorityTextsIn(directory))
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
