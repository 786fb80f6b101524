import { sql } from 'kysely'
import type { Database } from './database.ts'
import type { PrincipalType } from './schema.ts'
import { portionsOf } from './support/pages.ts'
import { type LedgerStatement, statementOf } from './support/statement.ts'

/** An id that an answer has stated to a principal. */
export interface ProviderState {
  /** The name that the ledger knows the principal by. */
  readonly ref: string
  /** Made of the id by the principal's key: the key's end is the end of what it says. */
  readonly digest: string
  /** ms since the epoch. */
  readonly expiresAt: number
}

/** The ids that are kept of one principal: the newest. */
export const MAX_PROVIDER_STATES = 50_000
/** The rows that one statement deletes at most: every decision waits meanwhile. */
const MAX_DELETED = 5_000
/** The rows of one statement; the digests of one question. */
const ROWS_AT_ONCE = 200

/** Keeps ids, each once, for as long as it says; none of a principal that has no key any more. */
export function rememberStates(
  { kysely }: Database,
  states: readonly ProviderState[],
): readonly LedgerStatement[] {
  return [...portionsOf(states, ROWS_AT_ONCE)].map((some) => {
    const rows = some.map(
      ({ ref, digest, expiresAt }) =>
        sql`(cast(${ref} as text), cast(${digest} as text), cast(${expiresAt} as bigint))`,
    )
    const query = sql`insert into provider_states (principal_ref, digest, expires_at)
      select column1, column2, column3 from (values ${sql.join(rows)}) as stated
      where column1 in (select principal_ref from subject_keys)
      on conflict (principal_ref, digest) do update set expires_at = excluded.expires_at`
    return { ...statementOf(query.compile(kysely)), beside: 'upkeep' }
  })
}

/** Finds those of the digests that are kept for a principal. */
export async function knownStates(
  { kysely }: Database,
  ref: string,
  digests: readonly string[],
  at: number,
): Promise<ReadonlySet<string>> {
  const known = new Set<string>()
  for (const some of portionsOf(digests, ROWS_AT_ONCE)) {
    const rows = await kysely
      .selectFrom('provider_states')
      .select('digest')
      .where('principal_ref', '=', ref)
      .where('digest', 'in', some)
      .where('expires_at', '>', at)
      .execute()
    for (const { digest } of rows) known.add(digest)
  }
  return known
}

/** Forgets all ids of a principal. To be done while its keys are there. */
export function deleteStates({ kysely }: Database, type: PrincipalType, id: string): LedgerStatement {
  const refs = kysely
    .selectFrom('subject_keys')
    .select('principal_ref')
    .where('principal_type', '=', type)
    .where('principal_id', '=', id)
  return statementOf(kysely.deleteFrom('provider_states').where('principal_ref', 'in', refs).compile())
}

/** Finds the principal with ids whose name comes next; null after the last. */
export async function nextWithStates({ kysely }: Database, after: string): Promise<string | null> {
  const row = await kysely
    .selectFrom('provider_states')
    .select(({ fn }) => fn.min<string | null>('principal_ref').as('ref'))
    .where('principal_ref', '>', after)
    .executeTakeFirst()
  return row?.ref ?? null
}

/** Forgets some ids of a principal: those that have expired, and those before its newest `most`. */
export function pruneStates(
  { kysely }: Database,
  ref: string,
  at: number,
  most = MAX_PROVIDER_STATES,
): readonly LedgerStatement[] {
  const own = kysely.selectFrom('provider_states').where('principal_ref', '=', ref)
  const oldest = own.select('digest').orderBy('expires_at').limit(MAX_DELETED)
  const firstKept = own
    .select('expires_at')
    .orderBy('expires_at', 'desc')
    .limit(1)
    .offset(most - 1)
  const gone = kysely.deleteFrom('provider_states').where('principal_ref', '=', ref)
  return [
    gone.where('digest', 'in', oldest.where('expires_at', '<=', at)),
    gone.where('digest', 'in', oldest.where('expires_at', '<', firstKept)),
  ].map((query) => ({ ...statementOf(query.compile()), beside: 'upkeep' as const }))
}
