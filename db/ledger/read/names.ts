import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { boundedCache } from '../../support/bounded-cache.ts'
import type { ReadableNames, StoredRow } from '../record/leaf.ts'

type PseudonymColumns = Pick<StoredRow, 'principal_id' | 'detail'>

const SUBJECT = /"subject":"(usr_[a-z2-7]{26})"/

export const pseudonymsIn = ({ principal_id: principal, detail }: PseudonymColumns): ReadableNames => ({
  principal_name: principal?.startsWith('usr_') ? principal : undefined,
  subject_name: SUBJECT.exec(detail)?.[1],
})

const MAX_CACHED_NAMES = 10_000

/**
 * Finds the readable ids of the users that a row knows by pseudonyms, while they exist
 * (docs/ledger.md#erasure).
 */
export function userNameFinder(
  db: Kysely<DatabaseSchema>,
): (row: PseudonymColumns) => Promise<ReadableNames> {
  // The empty text: there is no such user any more.
  const known = boundedCache<string>(MAX_CACHED_NAMES)
  const nameOf = async (pseudonym: string | undefined): Promise<string | undefined> => {
    if (pseudonym === undefined) return undefined
    const name = known.get(pseudonym) ?? (await userOf(db, pseudonym))
    known.set(pseudonym, name)
    return name === '' ? undefined : name
  }
  return async (row) => {
    const { principal_name: principal, subject_name: subject } = pseudonymsIn(row)
    return { principal_name: await nameOf(principal), subject_name: await nameOf(subject) }
  }
}

async function userOf(db: Kysely<DatabaseSchema>, pseudonym: string): Promise<string> {
  const own = db.selectFrom('subject_keys').select('principal_id').where('principal_ref', '=', pseudonym)
  return (await own.executeTakeFirst())?.principal_id ?? ''
}
