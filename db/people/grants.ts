import { randomBytes } from 'node:crypto'
import { type InferResult, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { CallGrade } from '../ledger/authority/rule.ts'
import { candidateSetOf, type PinnedPrincipal, storedCapabilities } from '../principals/pins.ts'
import type { DatabaseSchema, GrantClientKind, GrantKind } from '../schema.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'

/** The client of a grant, as rows and pages name it. */
export interface GrantClient {
  /** The host of its id, or of its first redirect. */
  readonly host: string
  /** SHA-256 of its id. Lower-case hex. */
  readonly idSha256: string
  readonly kind: GrantClientKind
}

/** A person's permission for a client to call in their name (docs/people.md). */
export interface PeopleGrant {
  readonly id: string
  /** A user's id. */
  readonly principalId: string
  readonly client: GrantClient
  readonly kind: GrantKind
  /** Null: all that the user holds. */
  readonly scope: readonly string[] | null
  /** The URL that its tokens are for. */
  readonly resource: string
  readonly bound: CallGrade
  /** RFC 7638 thumbprint, base64url; null if it is bound to no key. */
  readonly jkt: string | null
  /** The methods of the sign-in (RFC 8176). */
  readonly amr: readonly string[]
  /** ms since the epoch, as the other. */
  readonly issuedAt: number
  readonly expiresAt: number
}

/** A grant, and its user as the tables say it now. */
export interface GrantHolder {
  readonly grant: PeopleGrant
  readonly principal: Pick<
    PinnedPrincipal,
    | 'principal_id'
    | 'principal_ref'
    | 'principal_type'
    | 'capabilities'
    | 'candidate'
    | 'is_active'
    | 'authority_revision'
  >
}

/** The grants of one user: a further one replaces the oldest. */
export const MAX_GRANTS_PER_USER = 20

export const newGrantId = (): string => `grt_${randomBytes(20).toString('base64url').slice(0, 26)}`

/** Does NOT count how many the user has. */
export function insertGrant({ kysely }: Pick<Database, 'kysely'>, grant: PeopleGrant): LedgerStatement {
  const { id, principalId, client, kind, scope, resource, bound, jkt, amr, issuedAt, expiresAt } = grant
  const query = kysely.insertInto('people_grants').values({
    ...{ id, kind, resource, bound, jkt },
    principal_id: principalId,
    client_host: client.host,
    client_id_sha256: client.idSha256,
    client_kind: client.kind,
    scope: scope?.join(' ') ?? null,
    amr: JSON.stringify(amr),
    issued_at: timestamp(issuedAt),
    expires_at: timestamp(expiresAt),
  })
  return statementOf(query.compile(), 1)
}

/** Removes grants: all of them, or the unit is rolled back, for somebody else has ended one. */
export function removeGrants({ kysely }: Pick<Database, 'kysely'>, ids: readonly string[]): LedgerStatement {
  return statementOf(kysely.deleteFrom('people_grants').where('id', 'in', ids).compile(), ids.length)
}

type GrantRow = Pick<
  InferResult<ReturnType<typeof heldGrants>>[number],
  keyof DatabaseSchema['people_grants']
>

function grantOf(row: GrantRow): PeopleGrant {
  return {
    ...{ id: row.id, kind: row.kind, resource: row.resource, bound: row.bound, jkt: row.jkt },
    principalId: row.principal_id,
    client: { host: row.client_host, idSha256: row.client_id_sha256, kind: row.client_kind },
    scope: row.scope === null ? null : row.scope.split(' ').filter((name) => name !== ''),
    // Proven by insertGrant, which alone writes it.
    amr: JSON.parse(row.amr) as readonly string[],
    issuedAt: Date.parse(row.issued_at),
    expiresAt: Date.parse(row.expires_at),
  }
}

/** Reads the grants of a user, the newest first; those that have expired are among them until they are removed. */
export async function grantsOf(
  { kysely }: Pick<Database, 'kysely'>,
  principalId: string,
): Promise<readonly PeopleGrant[]> {
  const rows = await kysely
    .selectFrom('people_grants')
    .selectAll()
    .where('principal_id', '=', principalId)
    .orderBy('issued_at', 'desc')
    .orderBy('id')
    .execute()
  return rows.map(grantOf)
}

/** Reads grants, the oldest first: of a user, of the clients of a host, or all. */
export async function listGrants(
  { kysely }: Pick<Database, 'kysely'>,
  { user, host }: { readonly user?: string; readonly host?: string },
  limit: number,
): Promise<readonly PeopleGrant[]> {
  let query = kysely.selectFrom('people_grants').selectAll().orderBy('issued_at').orderBy('id').limit(limit)
  if (user !== undefined) query = query.where('principal_id', '=', user)
  if (host !== undefined) query = query.where('client_host', '=', host)
  return (await query.execute()).map(grantOf)
}

export async function hasExpiredGrants({ kysely }: Pick<Database, 'kysely'>, at: number): Promise<boolean> {
  const query = kysely.selectFrom('people_grants').select('id').where('expires_at', '<=', timestamp(at))
  return (await query.limit(1).executeTakeFirst()) !== undefined
}

/**
 * Forgets grants that have expired, without a row: their own row says until when they hold. May change none.
 */
export function forgetGrants({ kysely }: Pick<Database, 'kysely'>, at: number): LedgerStatement {
  return statementOf(kysely.deleteFrom('people_grants').where('expires_at', '<=', timestamp(at)).compile())
}

export async function findGrant(
  { kysely }: Pick<Database, 'kysely'>,
  id: string,
): Promise<PeopleGrant | undefined> {
  const row = await kysely.selectFrom('people_grants').selectAll().where('id', '=', id).executeTakeFirst()
  return row && grantOf(row)
}

/** Takes the id alone. A grant without its user is none. */
const heldGrants = ({ kysely }: Pick<Database, 'kysely'>) =>
  kysely
    .selectFrom('people_grants as g')
    .innerJoin('local_user_principals as u', 'u.principal_id', 'g.principal_id')
    .selectAll('g')
    .select(['u.principal_ref', 'u.capabilities', 'u.candidate', 'u.candidate_since', 'u.is_active'])
    .select('u.authority_revision')
    // Not the bare parameter: SQLite would plan the join again each time it is bound.
    .where('g.id', '=', sql<string>`'' || ${''}`)

/**
 * Finds a grant and its user, on every request. `asked`: never cached. Does NOT judge `expiresAt` and
 * `is_active` (plugins/people/bearer.ts).
 */
export function grantLookup(
  db: Database,
  how?: 'asked',
): (id: string) => GrantHolder | undefined | Promise<GrantHolder | undefined> {
  const lookup = db.lookup(heldGrants(db), how)
  return (id) => {
    const row = lookup(id)
    return row instanceof Promise ? row.then(holderOf) : holderOf(row)
  }
}

function holderOf(
  row: InferResult<ReturnType<typeof heldGrants>>[number] | undefined,
): GrantHolder | undefined {
  if (!row) return undefined
  return {
    grant: grantOf(row),
    principal: {
      principal_id: row.principal_id,
      principal_ref: row.principal_ref,
      principal_type: 'user',
      capabilities: storedCapabilities(row.capabilities),
      candidate: candidateSetOf(row.candidate, row.candidate_since),
      is_active: row.is_active === 1,
      authority_revision: row.authority_revision,
    },
  }
}

/** Asserts that a grant is still there. Compiles once, for the hot path. */
export function grantNotEnded({ kysely }: Pick<Database, 'kysely'>): (id: string) => RowAssertion {
  const { sql: text } = kysely
    .selectFrom('people_grants')
    .select(sql.lit(1).as('holds'))
    .where('id', '=', '')
    .compile()
  return (id) => ({ sql: text, parameters: [id] })
}

/** Tells whether a resource or a tool takes calls whose token is bound to no key. */
export async function takesBearer({ kysely }: Pick<Database, 'kysely'>): Promise<boolean> {
  const row = await kysely
    .selectFrom('mcp_resources')
    .select('min_proof')
    .where((eb) => eb.or([eb('min_proof', '=', 'none'), eb('tool_min_proof', 'like', '%:"none"%')]))
    .limit(1)
    .executeTakeFirst()
  return row !== undefined
}
