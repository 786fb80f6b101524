import { type Selectable, sql } from 'kysely'
import type { Database } from '../database.ts'
import { PRINCIPAL_TABLES } from '../principals/tables.ts'
import type { DatabaseSchema, PrincipalType } from '../schema.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'

/** The `oauth` block of a resource whose `auth_type` is `oauth` (docs/accounts.md). */
export interface OAuthSettings {
  /** Absent: found from the endpoint (RFC 9728). */
  readonly issuer?: string
  /** Absent: our metadata document, or registration. */
  readonly client_id?: string
  /** A reference like `auth_secret_ref`. Absent: a public client. */
  readonly client_secret_ref?: string
  readonly scopes: readonly string[]
  /** The name in the ledger of the principal whose account reads the definitions that are pinned. */
  readonly reader: string
}

/** The principal of an account. */
export interface AccountHolder {
  readonly id: string
  readonly type: PrincipalType
  /** The name in the ledger. */
  readonly ref: string
}

/** A principal's account at an MCP server. Never its tokens. Instants: ms since the epoch. */
export interface UpstreamAccount {
  /** `ua_` and 24 hex digits. */
  readonly id: string
  readonly holder: AccountHolder
  readonly resourceId: string
  readonly issuer: string
  /** The scopes that the issuer has granted; sorted. */
  readonly scopes: readonly string[]
  /** True: its tokens are bound to a key of the account (RFC 9449). */
  readonly bound: boolean
  /** Counts its tokens: from 1. */
  readonly revision: number
  readonly connectedAt: number
  /** The end of the present access token; null: the issuer did not say. */
  readonly expiresAt: number | null
  /** The instant of the last refresh; null: none yet. */
  readonly refreshedAt: number | null
}

/** The reason that an account ended (docs/ledger.md#actions). */
export type AccountEnd =
  | 'person'
  | 'operator'
  | 'deactivated'
  | 'erased'
  | 'unbound'
  | 'resource_removed'
  | 'replaced'
  | 'invalid_grant'

type AccountDatabase = Pick<Database, 'kysely'>

/** The row of an account. `tokens`: sealed (proxy/mcp/accounts/sealed-tokens.ts). */
export type StoredAccount = Selectable<DatabaseSchema['upstream_accounts']>

export function upstreamAccountOf(row: StoredAccount): UpstreamAccount {
  return {
    id: row.account_id,
    holder: { id: row.principal_id, type: row.principal_type, ref: row.principal_ref },
    resourceId: row.resource_id,
    issuer: row.issuer,
    scopes: row.scopes.split(' ').filter((scope) => scope !== ''),
    bound: row.bound === 1,
    revision: row.revision,
    connectedAt: Date.parse(row.connected_at),
    expiresAt: row.expires_at === null ? null : Date.parse(row.expires_at),
    refreshedAt: row.refreshed_at === null ? null : Date.parse(row.refreshed_at),
  }
}

const accountQuery = ({ kysely }: AccountDatabase) =>
  kysely
    .selectFrom('upstream_accounts')
    .selectAll()
    .where('principal_id', '=', '')
    .where('resource_id', '=', '')
    .where('principal_type', '=', 'user')

/** Finds the row of a principal at a resource, on every call. Never cached. */
export function accountLookup(
  db: Database,
): (
  principal: Pick<AccountHolder, 'id' | 'type'>,
  resourceId: string,
) => StoredAccount | undefined | Promise<StoredAccount | undefined> {
  const lookup = db.lookup(accountQuery(db), 'asked')
  return ({ id, type }, resourceId) => lookup(id, resourceId, type)
}

export function findAccount({ kysely }: AccountDatabase, id: string): Promise<StoredAccount | undefined> {
  return kysely.selectFrom('upstream_accounts').selectAll().where('account_id', '=', id).executeTakeFirst()
}

/** Reads accounts, the newest first: of a principal, at a resource, or both. */
export function listAccounts(
  { kysely }: AccountDatabase,
  of: { readonly principal?: Pick<AccountHolder, 'id' | 'type'>; readonly resourceId?: string },
): Promise<readonly StoredAccount[]> {
  let query = kysely.selectFrom('upstream_accounts').selectAll().orderBy('connected_at', 'desc')
  if (of.principal)
    query = query.where('principal_id', '=', of.principal.id).where('principal_type', '=', of.principal.type)
  if (of.resourceId !== undefined) query = query.where('resource_id', '=', of.resourceId)
  return query.orderBy('account_id').execute()
}

/** Inserts an account. Fails if the principal has one at the resource. */
export function insertAccount({ kysely }: AccountDatabase, row: StoredAccount): LedgerStatement {
  return statementOf(kysely.insertInto('upstream_accounts').values(row).compile(), 1)
}

/** Removes an account; of that revision alone, if one is given. */
export function removeAccount({ kysely }: AccountDatabase, id: string, revision?: number): LedgerStatement {
  let query = kysely.deleteFrom('upstream_accounts').where('account_id', '=', id)
  if (revision !== undefined) query = query.where('revision', '=', revision)
  return statementOf(query.compile(), 1)
}

/** Asserts that an account has not ended. Compiles once, for the hot path. */
export function accountNotEnded({ kysely }: AccountDatabase): (id: string) => RowAssertion {
  const { sql: text } = kysely
    .selectFrom('upstream_accounts')
    .select(sql.lit(1).as('holds'))
    .where('account_id', '=', '')
    .compile()
  return (id) => ({ sql: text, parameters: [id] })
}

/** Asserts that a principal is in service, and a resource there: of both an account may be made. */
export function mayHaveAccount(
  { kysely }: AccountDatabase,
  { type, id }: Pick<AccountHolder, 'id' | 'type'>,
  resourceId: string,
): RowAssertion {
  const { table, id: column } = PRINCIPAL_TABLES[type]
  const { sql: text } = kysely
    .selectFrom(kysely.dynamic.table(table).as('p'))
    .innerJoin('mcp_resources as r', (join) => join.onTrue())
    .select(sql.lit(1).as('holds'))
    .where(sql.ref<string>(`p.${column}`), '=', id)
    .where('p.is_active', '=', sql.lit(1 as const))
    .where('r.resource_id', '=', resourceId)
    .compile()
  return { sql: text, parameters: [id, resourceId] }
}

/**
 * Takes the refresh of a revision for one process, for a while: of two that take it at once the second changes
 * no row, and its unit is rolled back.
 */
export function claimRefresh(
  { kysely }: AccountDatabase,
  { id, revision }: Pick<UpstreamAccount, 'id' | 'revision'>,
  at: number,
  until: number,
): LedgerStatement {
  const query = kysely
    .updateTable('upstream_accounts')
    .set({ refreshing_until: timestamp(until) })
    .where('account_id', '=', id)
    .where('revision', '=', revision)
    .where((row) =>
      row.or([row('refreshing_until', 'is', null), row('refreshing_until', '<', timestamp(at))]),
    )
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}

/** Gives a refresh back that has come to nothing. May change no row. */
export function releaseRefresh(
  { kysely }: AccountDatabase,
  { id, revision }: Pick<UpstreamAccount, 'id' | 'revision'>,
): LedgerStatement {
  const query = kysely
    .updateTable('upstream_accounts')
    .set({ refreshing_until: null })
    .where('account_id', '=', id)
    .where('revision', '=', revision)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** The members of an account's row that a refresh makes. */
export type RefreshedMembers = Pick<StoredAccount, 'tokens' | 'scopes' | 'expires_at' | 'refreshed_at'>

/** Stores the tokens of a refresh, if nobody has stored newer ones. */
export function storeRefreshed(
  { kysely }: AccountDatabase,
  { id, revision }: Pick<UpstreamAccount, 'id' | 'revision'>,
  members: RefreshedMembers,
): LedgerStatement {
  const query = kysely
    .updateTable('upstream_accounts')
    .set({ ...members, revision: revision + 1, refreshing_until: null })
    .where('account_id', '=', id)
    .where('revision', '=', revision)
  return { ...statementOf(query.compile(), 1), beside: 'upkeep' }
}

/** Tokens that are to be revoked. `tokens`: sealed by the key of the service: the principal's may be gone. */
export type StoredRevocation = Selectable<DatabaseSchema['upstream_revocations']>

export function insertRevocation({ kysely }: AccountDatabase, row: StoredRevocation): LedgerStatement {
  return {
    ...statementOf(kysely.insertInto('upstream_revocations').values(row).compile(), 1),
    beside: 'upkeep',
  }
}

/** Reads the revocations that are to be tried by now, the longest waiting first. */
export function dueRevocations(
  { kysely }: AccountDatabase,
  at: number,
  limit: number,
): Promise<readonly StoredRevocation[]> {
  return kysely
    .selectFrom('upstream_revocations')
    .selectAll()
    .where('next_at', '<=', timestamp(at))
    .orderBy('next_at')
    .limit(limit)
    .execute()
}

/** Tries a revocation again later. May change no row. */
export function postponeRevocation(
  { kysely }: AccountDatabase,
  { account_id: id, tries }: Pick<StoredRevocation, 'account_id' | 'tries'>,
  nextAt: number,
): LedgerStatement {
  const query = kysely
    .updateTable('upstream_revocations')
    .set({ tries: tries + 1, next_at: timestamp(nextAt) })
    .where('account_id', '=', id)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** May change no row. */
export function removeRevocation({ kysely }: AccountDatabase, id: string): LedgerStatement {
  const query = kysely.deleteFrom('upstream_revocations').where('account_id', '=', id)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** Finds our registration at an issuer, sealed. */
export async function findUpstreamClient(
  { kysely }: AccountDatabase,
  issuer: string,
): Promise<string | undefined> {
  const query = kysely.selectFrom('upstream_clients').select('client').where('issuer', '=', issuer)
  return (await query.executeTakeFirst())?.client
}

/** Stores a registration; one that another process has made meanwhile stays. May change no row. */
export function insertUpstreamClient(
  { kysely }: AccountDatabase,
  issuer: string,
  client: string,
): LedgerStatement {
  const query = kysely
    .insertInto('upstream_clients')
    .values({ issuer, client })
    .onConflict((known) => known.column('issuer').doNothing())
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** Forgets a registration, if it is still that one. May change no row. */
export function removeUpstreamClient(
  { kysely }: AccountDatabase,
  issuer: string,
  client: string,
): LedgerStatement {
  const query = kysely
    .deleteFrom('upstream_clients')
    .where('issuer', '=', issuer)
    .where('client', '=', client)
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}
