import { type ExpressionBuilder, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

/** A thing between two requests of a sign-in, such as a code or a refresh token. Instants: ms since the epoch. */
export interface PeopleState {
  readonly kind: string
  /** SHA-256 of its id. Lower-case hex, as the digests below. */
  readonly idSha256: string
  readonly grantId: string | null
  /** Digest of another id that finds it; null: none. */
  readonly uid: string | null
  /** Digest of the code that a person types in; null: none. */
  readonly userCode: string | null
  /** Digest of whose share of all that are open it takes; null: of nobody's. */
  readonly sender: string | null
  /** Sealed. */
  readonly payload: string
  readonly consumedAt: number | null
  readonly expiresAt: number
}

type StateColumn = 'id_sha256' | 'uid' | 'user_code'
type StateDatabase = Pick<Database, 'kysely'>

/** Finds a state that has not expired. */
export async function findPeopleState(
  { kysely }: StateDatabase,
  kind: string,
  column: StateColumn,
  digest: string,
  at: number,
): Promise<PeopleState | undefined> {
  const row = await kysely
    .selectFrom('people_states')
    .selectAll()
    .where('kind', '=', kind)
    .where(column, '=', digest)
    .where('expires_at', '>', at)
    .executeTakeFirst()
  if (!row) return undefined
  return {
    ...{ kind, idSha256: row.id_sha256, grantId: row.grant_id, uid: row.uid, userCode: row.user_code },
    sender: row.sender,
    payload: row.payload,
    consumedAt: row.consumed_at === null ? null : Number(row.consumed_at),
    expiresAt: Number(row.expires_at),
  }
}

/** Stores a state in the place of the one with its id. Does NOT change whether that was consumed. */
export function putPeopleState({ kysely }: StateDatabase, state: PeopleState): LedgerStatement {
  const { grantId, uid, userCode, sender, payload, expiresAt } = state
  const content = { grant_id: grantId, uid, user_code: userCode, sender, payload, expires_at: expiresAt }
  const query = kysely
    .insertInto('people_states')
    .values({ kind: state.kind, id_sha256: state.idSha256, consumed_at: null, ...content })
    .onConflict((conflict) => conflict.columns(['kind', 'id_sha256']).doUpdateSet(content))
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}

/**
 * Consumes a state as it was found: of two that consume one at once the second rolls its unit back, whichever
 * replica made the first. `payload`: from then on.
 */
export function consumePeopleState(
  { kysely }: StateDatabase,
  found: PeopleState,
  payload: string,
  at: number,
): LedgerStatement {
  const query = kysely
    .updateTable('people_states')
    .set({ consumed_at: found.consumedAt ?? at, payload })
    .where('kind', '=', found.kind)
    .where('id_sha256', '=', found.idSha256)
    .where('payload', '=', found.payload)
    .where('consumed_at', found.consumedAt === null ? 'is' : '=', found.consumedAt)
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}

const withKindAndId =
  (kind: string, idSha256: string) => (row: ExpressionBuilder<DatabaseSchema, 'people_states'>) =>
    row.and([row('kind', '=', kind), row('id_sha256', '=', idSha256)])

/** Removes a state. May change no row. */
export function removePeopleState(
  { kysely }: StateDatabase,
  kind: string,
  idSha256: string,
): LedgerStatement {
  const query = kysely.deleteFrom('people_states').where(withKindAndId(kind, idSha256))
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** Removes the states of grants, of one kind or of all. May change no row. */
export function removeGrantStates(
  { kysely }: StateDatabase,
  grantIds: readonly string[],
  kind?: string,
): LedgerStatement {
  const all = kysely.deleteFrom('people_states').where('grant_id', 'in', grantIds)
  const query = kind === undefined ? all : all.where('kind', '=', kind)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** The states of kinds that strangers make: how many there are, and the sender that has most of them. */
interface OpenShares {
  readonly total: number
  readonly fullest: string | null
}

/** Counts the states of kinds that strangers make, those that have not expired. `sender`: wants one more. */
export async function openShares(
  { kysely }: StateDatabase,
  kinds: readonly string[],
  sender: string | null,
  at: number,
): Promise<OpenShares> {
  const row = await kysely
    .selectFrom('people_states')
    .select(['sender', sql<number>`sum(count(*)) over ()`.as('total')])
    .where('kind', 'in', kinds)
    .where('expires_at', '>', at)
    .groupBy('sender')
    .orderBy(sql`count(*) + case when sender = ${sender} then 1 else 0 end`, 'desc')
    .orderBy(({ fn }) => fn.min('expires_at'))
    .limit(1)
    .executeTakeFirst()
  return { total: Number(row?.total ?? 0), fullest: row?.sender ?? null }
}

/** Removes the oldest states of a sender: `count` of them, of any of the kinds. May change no row. */
export function removeOldest(
  { kysely }: StateDatabase,
  kinds: readonly string[],
  sender: string | null,
  count: number,
): LedgerStatement {
  const oldest = kysely
    .selectFrom('people_states')
    .select('id_sha256')
    .where('kind', 'in', kinds)
    .where('sender', 'is not distinct from', sender)
    .orderBy('expires_at')
    .limit(count)
  const query = kysely.deleteFrom('people_states').where('kind', 'in', kinds).where('id_sha256', 'in', oldest)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** The rows that one statement deletes at most: every decision waits meanwhile. */
const MAX_DELETED = 1_000

/** Forgets expired states, and the identities of users who are gone. */
export function prunePeopleStates({ kysely }: StateDatabase, at: number): readonly LedgerStatement[] {
  const expired = kysely
    .selectFrom('people_states')
    .select('expires_at')
    .where('expires_at', '<', at)
    .orderBy('expires_at')
    .limit(1)
    .offset(MAX_DELETED)
  // Up to the first that is beyond; all, if there are fewer.
  const states = kysely
    .deleteFrom('people_states')
    .where('expires_at', '<', (eb) => eb.fn.coalesce(expired, eb.val(at)))
  const users = kysely.selectFrom('local_user_principals').select('principal_id')
  const identities = kysely.deleteFrom('people_identities').where('principal_id', 'not in', users)
  return [states, identities].map((query) => ({ ...statementOf(query.compile()), beside: 'upkeep' as const }))
}

/** Finds the user that was made for somebody, by the keyed digest of issuer and subject. */
export async function userOfIdentity({ kysely }: StateDatabase, digest: string): Promise<string | undefined> {
  const row = await kysely
    .selectFrom('people_identities as i')
    .innerJoin('local_user_principals as u', 'u.principal_id', 'i.principal_id')
    .select('i.principal_id')
    .where('i.digest', '=', digest)
    .executeTakeFirst()
  return row?.principal_id
}

/** Says whose a user is; in the place of one who is gone. */
export function putIdentity({ kysely }: StateDatabase, digest: string, principalId: string): LedgerStatement {
  const query = kysely
    .insertInto('people_identities')
    .values({ digest, principal_id: principalId })
    .onConflict((conflict) => conflict.column('digest').doUpdateSet({ principal_id: principalId }))
  return statementOf(query.compile(), 1)
}
