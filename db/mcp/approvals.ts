import { hash } from 'node:crypto'
import { type Selectable, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { ApprovalStatus, DatabaseSchema, PrincipalType } from '../schema.ts'
import { claimOnce, isClaimed } from '../single-uses.ts'
import { type ListCursor, type ListPage, listPageOf } from '../support/cursor.ts'
import type { JsonObject } from '../support/json.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'

/** A call that waits for an approval, or has waited for one (docs/approvals.md). */
export type StoredApproval = Selectable<DatabaseSchema['approvals']>

/** The approvals that may be open at one time. */
export const MAX_OPEN_APPROVALS = 1_000
export const MAX_OPEN_APPROVALS_OF_ONE = 16

/** The time after its end in which an approval can still be looked at. ms. */
const LISTED_MS = 86_400_000

/** Says an approval as the ledger does. */
export const approvalDetail = (one: StoredApproval): JsonObject => ({
  approval: one.approval_id,
  subject: one.principal_ref,
  resource: { id: one.resource_id, revision: one.resource_revision },
  tool: `${one.resource_name}.${one.tool}`,
  pin: one.pin,
  call_digest: one.call_digest,
  arguments_bytes: one.arguments_bytes,
  expires_at: one.expires_at,
  ...(one.approver === 'person' && { approver: one.approver }),
})

/** Finds the approvals of the same call, the newest first. */
export function approvalsOfCall(
  { kysely }: Pick<Database, 'kysely'>,
  { ref, digest }: { readonly ref: string; readonly digest: string },
): Promise<readonly StoredApproval[]> {
  return kysely
    .selectFrom('approvals')
    .selectAll()
    .where('principal_ref', '=', ref)
    .where('call_digest', '=', digest)
    .orderBy('created_at', 'desc')
    .orderBy('approval_id', 'desc')
    .limit(MAX_OPEN_APPROVALS_OF_ONE)
    .execute()
}

export function findApproval(
  { kysely }: Pick<Database, 'kysely'>,
  id: string,
): Promise<StoredApproval | undefined> {
  return kysely.selectFrom('approvals').selectAll().where('approval_id', '=', id).executeTakeFirst()
}

interface ApprovalQuery {
  readonly status?: ApprovalStatus | undefined
  readonly limit: number
  readonly cursor?: ListCursor | undefined
}

export async function listApprovals(
  { kysely }: Pick<Database, 'kysely'>,
  { status, limit, cursor }: ApprovalQuery,
): Promise<ListPage<StoredApproval>> {
  let query = kysely.selectFrom('approvals').selectAll()
  if (status !== undefined) query = query.where('status', '=', status)
  if (cursor)
    query = query.where(sql<boolean>`(created_at, approval_id) < (${cursor.createdAt}, ${cursor.id})`)
  const rows = await query
    .orderBy('created_at', 'desc')
    .orderBy('approval_id', 'desc')
    .limit(limit + 1)
    .execute()
  return listPageOf(rows, limit, ({ approval_id: id }) => id)
}

/** Inserts an open approval. Changes no row if the same call has one. */
export function insertApproval(
  { kysely }: Pick<Database, 'kysely'>,
  approval: StoredApproval,
): LedgerStatement {
  const query = kysely
    .insertInto('approvals')
    .values(approval)
    .onConflict((known) => known.doNothing())
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}

/** Asserts that one more approval of a principal may be open. `at`: ms since the epoch. */
export function roomForApproval({ kysely }: Pick<Database, 'kysely'>, ref: string, at: number): RowAssertion {
  const now = timestamp(at)
  const all = sql`(select count(*) from approvals where status = 'open' and expires_at > ${now})`
  const own = sql`(select count(*) from approvals where status = 'open' and expires_at > ${now} and principal_ref = ${ref})`
  const { sql: text } = sql`select 1 as holds where ${all} < ${sql.lit(MAX_OPEN_APPROVALS)}
    and ${own} < ${sql.lit(MAX_OPEN_APPROVALS_OF_ONE)}`.compile(kysely)
  return { sql: text, parameters: [now, now, ref] }
}

export async function hasRoomForApproval(
  { kysely }: Pick<Database, 'kysely'>,
  ref: string,
  at: number,
): Promise<boolean> {
  const open = kysely
    .selectFrom('approvals')
    .select(({ fn }) => fn.countAll().as('total'))
    .where('status', '=', 'open')
    .where('expires_at', '>', timestamp(at))
  const [all, own] = await Promise.all([
    open.executeTakeFirstOrThrow(),
    open.where('principal_ref', '=', ref).executeTakeFirstOrThrow(),
  ])
  return Number(all.total) < MAX_OPEN_APPROVALS && Number(own.total) < MAX_OPEN_APPROVALS_OF_ONE
}

interface ApprovalDecision {
  readonly id: string
  readonly status: Exclude<ApprovalStatus, 'open'>
  /** Null: nobody, its time was over. */
  readonly by: string | null
  readonly via: string | null
  readonly reason: string | null
  /** ms since the epoch. */
  readonly at: number
}

/** Ends an open approval; another one changes no row. The arguments are forgotten. */
export function decideApproval(
  { kysely }: Pick<Database, 'kysely'>,
  { id, status, by, via, reason, at }: ApprovalDecision,
): LedgerStatement {
  const query = kysely
    .updateTable('approvals')
    .set({ status, decided_by: by, via, reason, decided_at: timestamp(at), arguments: null })
    .where('approval_id', '=', id)
    .where('status', '=', 'open')
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}

/** The open approvals that are past their end, oldest first. `at`: ms since the epoch. */
export function overdueApprovals(
  { kysely }: Pick<Database, 'kysely'>,
  at: number,
  limit: number,
): Promise<readonly StoredApproval[]> {
  return kysely
    .selectFrom('approvals')
    .selectAll()
    .where('status', '=', 'open')
    .where('expires_at', '<=', timestamp(at))
    .orderBy('expires_at')
    .limit(limit)
    .execute()
}

const oldBefore = (at: number): string => timestamp(at - LISTED_MS)

export async function hasOldApprovals({ kysely }: Pick<Database, 'kysely'>, at: number): Promise<boolean> {
  const old = kysely.selectFrom('approvals').select('approval_id')
  const found = old.where('status', '<>', 'open').where('expires_at', '<', oldBefore(at)).limit(1)
  return (await found.executeTakeFirst()) !== undefined
}

/** Forgets decided approvals that ended long ago, some at a time. */
export function pruneApprovals({ kysely }: Pick<Database, 'kysely'>, at: number): LedgerStatement {
  const old = kysely
    .selectFrom('approvals')
    .select('approval_id')
    .where('status', '<>', 'open')
    .where('expires_at', '<', oldBefore(at))
    .limit(1_000)
  return {
    ...statementOf(kysely.deleteFrom('approvals').where('approval_id', 'in', old).compile()),
    beside: 'upkeep',
  }
}

export function deleteApprovals(
  { kysely }: Pick<Database, 'kysely'>,
  type: PrincipalType,
  id: string,
): LedgerStatement {
  const own = kysely.deleteFrom('approvals').where('principal_type', '=', type)
  return statementOf(own.where('principal_id', '=', id).compile())
}

/** Asserts that an approval is given, for this call, and not over. `at`: ms since the epoch. */
export function approvalStands(
  { kysely }: Pick<Database, 'kysely'>,
  { approval_id: id, call_digest: digest, principal_ref: ref }: StoredApproval,
  at: number,
): RowAssertion {
  const query = kysely
    .selectFrom('approvals')
    .select(sql.lit(1).as('holds'))
    .where('status', '=', sql.lit('approved' as const))
    .where('approval_id', '=', id)
    .where('call_digest', '=', digest)
    .where('principal_ref', '=', ref)
    .where('expires_at', '>', timestamp(at))
  return { sql: query.compile().sql, parameters: [id, digest, ref, timestamp(at)] }
}

const useDigest = (id: string): string => hash('sha256', `use of ${id}`)

/** Claims the one use of an approval: a second claim is a `duplicate`. */
export const useApproval = (
  database: Database,
  { approval_id: id, expires_at: until }: Pick<StoredApproval, 'approval_id' | 'expires_at'>,
): LedgerStatement => claimOnce(database, useDigest(id), Date.parse(until) + 2 * LISTED_MS)

/** Asks whether an approval was used. */
export function isApprovalUsed(database: Database): (id: string) => Promise<boolean> {
  const claimed = isClaimed(database)
  return (id) => claimed(useDigest(id))
}
