import { existsSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { sql } from 'kysely'
import { seal, unseal, writePrivateFile } from '../../certs/authority/key-store.ts'
import type { Database } from '../../db/database.ts'
import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import { openLedger } from '../../db/ledger/record/ledger.ts'
import { insertSetting, readSetting } from '../../db/settings.ts'
import { type LedgerStatement, statementOf } from '../../db/support/statement.ts'
import {
  adoptNextPassphrase,
  isSealedBy,
  nextPassphraseFile,
  openPassphrase,
  randomPassphrase,
  readPassphrase,
} from './passphrase.ts'
import type { Settings } from './settings.ts'
import { authorityTextsIn, followResealedAuthority } from './shared-authority.ts'
import { VERSION } from './version.ts'

/**
 * The columns that hold what the passphrase seals, wherever it stands in their texts, and the key of their rows:
 * a rotation re-seals these and nothing else. `subject_keys` is sealed by a key that is in `settings`.
 */
export const SEALED_COLUMNS = [
  { table: 'settings', key: 'key', column: 'value' },
  { table: 'signing_keys', key: 'kid', column: 'sealed_key' },
  { table: 'audit_keys', key: 'id', column: 'sealed_key' },
] as const

type SealedColumn = (typeof SEALED_COLUMNS)[number]

const SEALED_TEXT = /sallyport-sealed\.[\w.-]+/g
const LIKE_SEALED = '%sallyport-sealed.%'

/** The shortest passphrase that a rotation takes. Characters. */
const MIN_PASSPHRASE = 16

/** A rotation that is done: `completed` if a crash had interrupted it. */
export interface PassphraseRotation {
  readonly outcome: 'rotated' | 'completed'
  /** The number of sealed texts in the database. */
  readonly sealed: number
}

interface RotationOptions {
  /** The new passphrase; null: a random one, if the data directory keeps the passphrase. */
  readonly next: string | null
  readonly at: number
  readonly entry: LedgerEntry
}

/**
 * Seals everything with a new passphrase. All that the database holds changes in one transaction with its row,
 * after which only the new one opens it; the files of a data directory follow the database, now or at its next
 * start. A second run completes one that was interrupted. Throws one sentence, and has then changed nothing, if
 * the passphrase is wrong or the new one is not good enough. The caller holds the lease of the data directory.
 */
export async function rotatePassphrase(
  settings: Settings,
  database: Database,
  { next: given, at, entry }: RotationOptions,
): Promise<PassphraseRotation> {
  if (given !== null) requireStrong(given)
  const isKept = settings.keyPassphrase === null
  const waiting = isKept ? await readPassphrase(nextPassphraseFile(settings)) : null
  const current = await openPassphrase(settings, database, [])
  if (waiting === current && (given ?? current) === current)
    return follow(settings, database, current, 'completed')
  const next = given ?? waiting ?? (isKept ? randomPassphrase() : null)
  if (next === null) {
    throw new Error(
      'the passphrase is in MCP_PROXY_KEY_PASSPHRASE: write the new one into a file, and name it with --new FILE',
    )
  }
  if (await isSealedBy(database, next)) {
    if (next === current) throw new Error('the new passphrase is the one in force: choose another')
    return follow(settings, database, next, 'completed')
  }
  const texts = await openAll(settings, database, current)
  if (isKept && next !== waiting) await writePrivateFile(nextPassphraseFile(settings), `${next}\n`)
  const ledger = await openLedger({ database, version: VERSION })
  try {
    await ledger.commit({ statements: resealed(database, texts, next, at), entries: [entry] })
  } finally {
    await ledger.close()
  }
  return follow(settings, database, next, 'rotated')
}

function requireStrong(passphrase: string): void {
  if (passphrase.length < MIN_PASSPHRASE) {
    throw new Error(
      `the new passphrase has ${passphrase.length} characters, and at least ${MIN_PASSPHRASE} are needed: make one with openssl rand -hex 32`,
    )
  }
}

/** A text of a column with the secrets that are sealed in it, opened. `column`: null for the CA of the files. */
interface OpenedText {
  readonly column: SealedColumn | null
  readonly key: string
  readonly text: string
  readonly secrets: ReadonlyMap<string, string>
}

/** Opens everything that is sealed. Throws if anything does not open, before anything is written. */
async function openAll(settings: Settings, database: Database, passphrase: string): Promise<OpenedText[]> {
  const opened: OpenedText[] = []
  for (const column of SEALED_COLUMNS) {
    for (const { key, text } of await sealedRows(database, column))
      opened.push({ column, key, text, secrets: secretsIn(text, passphrase) })
  }
  if (opened.length === 0) throw new Error('nothing is sealed here yet: start the gateway first')
  const directory = join(settings.dataDir, 'ca')
  if ((await readSetting(database, 'authority')) === undefined && existsSync(join(directory, 'root.crt'))) {
    const text = JSON.stringify(await authorityTextsIn(directory))
    opened.push({ column: null, key: 'authority', text, secrets: secretsIn(text, passphrase) })
  }
  return opened
}

const secretsIn = (text: string, passphrase: string): ReadonlyMap<string, string> =>
  new Map((text.match(SEALED_TEXT) ?? []).map((sealed) => [sealed, unseal(sealed, passphrase)]))

async function sealedRows({ kysely }: Database, { table, key, column }: SealedColumn) {
  const { rows } = await sql<{ key: string; text: string }>`
    select ${sql.ref(key)} as key, ${sql.ref(column)} as text from ${sql.table(table)}
    where ${sql.ref(column)} like ${LIKE_SEALED} order by ${sql.ref(key)}`.execute(kysely)
  return rows
}

/**
 * The statements that store everything sealed anew. Each changes just the rows that were read, as they were read:
 * what another process has sealed meanwhile fails the unit. The first locks the setting that
 * `passphraseUnchanged` asks for.
 */
function resealed(
  database: Database,
  opened: readonly OpenedText[],
  passphrase: string,
  at: number,
): LedgerStatement[] {
  const { kysely } = database
  const renewed = opened.map(({ column, key, text, secrets }) => {
    const value = text.replace(SEALED_TEXT, (one) => seal(secrets.get(one) ?? '', passphrase).trim())
    return { column, key, text, value }
  })
  const made = renewed.filter(({ column }) => column === null).length
  const isLock = ({ key }: Pick<OpenedText, 'key'>): boolean => key === 'subject_key_sealer'
  const statements = [...renewed.filter(isLock), ...renewed.filter((one) => !isLock(one))].map(
    ({ column, key, text, value }) => {
      if (column === null) return insertSetting(database, 'authority', value, at)
      const update = sql`update ${sql.table(column.table)} set ${sql.ref(column.column)} = ${value}
        where ${sql.ref(column.key)} = ${key} and ${sql.ref(column.column)} = ${text}`
      return statementOf(update.compile(kysely), 1)
    },
  )
  const counts = SEALED_COLUMNS.map(({ table, column }) => {
    const count =
      renewed.filter((one) => one.column?.table === table).length + (table === 'settings' ? made : 0)
    return sql`(select count(*) from ${sql.table(table)} where ${sql.ref(column)} like ${LIKE_SEALED}) = ${sql.lit(count)}`
  })
  const whole = sql`update settings set value = value
    where key = 'subject_key_sealer' and ${sql.join(counts, sql` and `)}`
  return [...statements, statementOf(whole.compile(kysely), 1)]
}

/** Lets the files of the data directory follow the database. */
async function follow(
  settings: Settings,
  database: Database,
  passphrase: string,
  outcome: PassphraseRotation['outcome'],
): Promise<PassphraseRotation> {
  const directory = join(settings.dataDir, 'ca')
  await followResealedAuthority(database, directory, passphrase)
  // Sealed by the former one, and made again at the next start.
  await rm(join(directory, 'server.key.sealed'), { force: true })
  if (existsSync(nextPassphraseFile(settings))) await adoptNextPassphrase(settings)
  const counts = await Promise.all(SEALED_COLUMNS.map((column) => sealedRows(database, column)))
  return { outcome, sealed: counts.flat().length }
}
