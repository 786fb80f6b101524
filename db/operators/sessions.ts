import { type ExpressionBuilder, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'

/** The session of a browser, and its operator as the tables say it now. Timestamps are RFC 3339. */
export interface StoredSession
  extends Pick<
    DatabaseSchema['operator_sessions'],
    'id_sha256' | 'principal_id' | 'via' | 'issuer' | 'subject' | 'provider_session'
  > {
  readonly amr: string
  readonly mapped_by: string
  readonly created_at: string
  readonly used_at: string
  readonly expires_at: string
  /** Null, as what follows: it was signed in by the secret, or its operator is gone. */
  readonly capabilities: string | null
  readonly is_active: 0 | 1 | null
  readonly authority_revision: number | null
}

/** Finds a session by its cookie's SHA-256, lower-case hex. Does NOT decide if it holds. */
export async function findSession(db: Database, digest: string): Promise<StoredSession | undefined> {
  return sessions(db).where('s.id_sha256', '=', digest).executeTakeFirst()
}

/** An operator's id; null: the sessions by the shared secret, which belong to nobody in particular. */
export interface OperatorSessionOwner {
  readonly principalId: string | null
}

/** The sessions that one operator has at most; those by the secret count as one operator's. */
export const MAX_SESSIONS_PER_OPERATOR = 20
/** The sessions shown at once. For showing alone: operations on sessions use a condition. */
const MAX_SHOWN = 500

/** Lists sessions, newest first. `of`: of that operator alone. */
export async function listStoredSessions(
  db: Database,
  of?: OperatorSessionOwner,
): Promise<readonly StoredSession[]> {
  const all = sessions(db).orderBy('s.created_at', 'desc').orderBy('s.id_sha256').limit(MAX_SHOWN)
  return (of === undefined ? all : all.where(isOwnedBy(of))).execute()
}

const isOwnedBy =
  ({ principalId }: OperatorSessionOwner) =>
  (row: ExpressionBuilder<{ s: DatabaseSchema['operator_sessions'] }, 's'>) =>
    principalId === null ? row('s.via', '=', 'secret') : row('s.principal_id', '=', principalId)

export async function sessionsByPrefix(db: Database, prefix: string): Promise<readonly StoredSession[]> {
  return sessions(db).where('s.id_sha256', 'like', `${prefix}%`).execute()
}

/** The digests of sessions for which a new one of that operator leaves no room. */
export async function excessSessions(
  { kysely }: Database,
  owner: OperatorSessionOwner,
): Promise<readonly string[]> {
  const rows = await kysely
    .selectFrom('operator_sessions as s')
    .select('s.id_sha256')
    .where(isOwnedBy(owner))
    .orderBy('s.created_at', 'desc')
    .orderBy('s.id_sha256')
    .offset(MAX_SESSIONS_PER_OPERATOR - 1)
    .limit(MAX_SESSIONS_PER_OPERATOR)
    .execute()
  return rows.map(({ id_sha256: digest }) => digest)
}

/**
 * Ends all sessions of an operator but this one and the newest others, {@link MAX_SESSIONS_PER_OPERATOR}
 * together. May change no row.
 */
export function endOldestSessions(
  { kysely }: Database,
  owner: OperatorSessionOwner,
  digest: string,
): LedgerStatement {
  const others = kysely
    .selectFrom('operator_sessions as s')
    .select('s.id_sha256')
    .where(isOwnedBy(owner))
    .where('s.id_sha256', '!=', digest)
  const newest = others
    .orderBy('s.created_at', 'desc')
    .orderBy('s.id_sha256')
    .limit(MAX_SESSIONS_PER_OPERATOR - 1)
  const query = kysely
    .deleteFrom('operator_sessions')
    .where('id_sha256', 'in', others)
    .where('id_sha256', 'not in', newest)
  return statementOf(query.compile())
}

/** A logout at the identity provider: of a person, one of its sessions there, or both. */
export interface ProviderLogout {
  readonly issuer: string
  readonly subject: string | null
  readonly providerSession: string | null
}

export async function sessionsOfLogout(
  db: Database,
  logout: ProviderLogout,
): Promise<{ readonly newest: readonly StoredSession[]; readonly total: number }> {
  const { total } = await db.kysely
    .selectFrom('operator_sessions as s')
    .select(({ fn }) => fn.countAll().as('total'))
    .where(matchesLogout(logout))
    .executeTakeFirstOrThrow()
  const newest = sessions(db).where(matchesLogout(logout)).orderBy('s.created_at', 'desc').limit(MAX_SHOWN)
  return { newest: await newest.execute(), total: Number(total) }
}

/** Ends all sessions that a logout is about, however many they are. May change no row. */
export function endSessionsOfLogout({ kysely }: Database, logout: ProviderLogout): LedgerStatement {
  const all = kysely.selectFrom('operator_sessions as s').select('s.id_sha256').where(matchesLogout(logout))
  return statementOf(kysely.deleteFrom('operator_sessions').where('id_sha256', 'in', all).compile())
}

/** A logout that names neither a person nor a session is about none. */
const matchesLogout =
  ({ issuer, subject, providerSession }: ProviderLogout) =>
  (row: ExpressionBuilder<{ s: DatabaseSchema['operator_sessions'] }, 's'>) => {
    const named = [
      ...(subject === null ? [] : [row('s.subject', '=', subject)]),
      ...(providerSession === null ? [] : [row('s.provider_session', '=', providerSession)]),
    ]
    return row.and([row('s.issuer', '=', issuer), ...(named.length === 0 ? [row.lit(false)] : named)])
  }

function sessions({ kysely }: Database) {
  return kysely
    .selectFrom('operator_sessions as s')
    .leftJoin('local_operator_principals as o', 'o.principal_id', 's.principal_id')
    .select(['s.id_sha256', 's.principal_id', 's.via', 's.amr', 's.issuer', 's.subject'])
    .select(['s.provider_session', 's.mapped_by', 's.created_at', 's.used_at', 's.expires_at'])
    .select(['o.capabilities', 'o.is_active', 'o.authority_revision'])
}

export function sessionNotEnded({ kysely }: Database): (digest: string) => RowAssertion {
  const { sql: text } = kysely
    .selectFrom('operator_sessions')
    .select(sql.lit(1).as('holds'))
    .where('id_sha256', '=', '')
    .compile()
  return (digest) => ({ sql: text, parameters: [digest] })
}

interface NewSession
  extends Pick<
    DatabaseSchema['operator_sessions'],
    'id_sha256' | 'principal_id' | 'via' | 'issuer' | 'subject' | 'provider_session' | 'mapped_by'
  > {
  readonly amr: readonly string[]
  /** ms since the epoch, like the other. */
  readonly at: number
  readonly expiresAt: number
}

export function insertSession({ kysely }: Database, session: NewSession): LedgerStatement {
  const { at, expiresAt, amr, ...columns } = session
  const query = kysely.insertInto('operator_sessions').values({
    ...columns,
    amr: JSON.stringify(amr),
    created_at: timestamp(at),
    used_at: timestamp(at),
    expires_at: timestamp(expiresAt),
  })
  return statementOf(query.compile(), 1)
}

/** Notes that a session was used. May change no row: somebody else has noted it, or ended the session. */
export function touchSession(
  { kysely }: Database,
  digest: string,
  before: string,
  at: number,
): LedgerStatement {
  const query = kysely
    .updateTable('operator_sessions')
    .set({ used_at: timestamp(at) })
    .where('id_sha256', '=', digest)
    .where('used_at', '=', before)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

export function endStoredSession({ kysely }: Database, digest: string): LedgerStatement {
  return statementOf(kysely.deleteFrom('operator_sessions').where('id_sha256', '=', digest).compile())
}

/** Forgets the sessions whose time is over. May change no row. */
export function forgetSessions({ kysely }: Database, at: number): LedgerStatement {
  return statementOf(
    kysely.deleteFrom('operator_sessions').where('expires_at', '<=', timestamp(at)).compile(),
  )
}

/** Ends every session that was signed in by the operator secret. May change no row. */
export function endSessionsBySecret({ kysely }: Database): LedgerStatement {
  return statementOf(kysely.deleteFrom('operator_sessions').where('via', '=', 'secret').compile())
}

export function endSessionsOf({ kysely }: Database, principalId: string): LedgerStatement {
  return statementOf(kysely.deleteFrom('operator_sessions').where('principal_id', '=', principalId).compile())
}
