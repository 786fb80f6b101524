import { sql } from 'kysely'
import type { Database } from '../database.ts'
import type { PrincipalType } from '../schema.ts'
import { allPages, noPause, type PagePause } from '../support/pages.ts'
import { type LedgerStatement, type RowAssertion, statementOf, timestamp } from '../support/statement.ts'
import { type McpResource, mcpResourceOf } from './resources.ts'

/** A principal may reach a resource; its capabilities say what it may do there. */
export interface McpBinding {
  readonly binding_id: string
  readonly principal_type: PrincipalType
  readonly principal_id: string
  readonly resource_id: string
  readonly created_at: string
  /** The author's name in the ledger. Null: unknown. */
  readonly created_by: string | null
}

export interface NamedMcpBinding extends McpBinding {
  readonly resource_name: string
}

/**
 * The binding of a principal to a resource, or null, for the hot path. Does NOT say that either is enabled.
 */
export function bindingId(
  db: Database,
): (type: PrincipalType, principalId: string, resourceId: string) => string | null | Promise<string | null> {
  const lookup = db.lookup(bindingIdQuery(db))
  return (type, principalId, resourceId) => {
    const row = lookup(type, principalId, resourceId)
    return row instanceof Promise ? row.then((found) => found?.binding_id ?? null) : (row?.binding_id ?? null)
  }
}

/** Parameters: type and id of the principal, the resource's id. Exported for the test of its query plan. */
export const bindingIdQuery = ({ kysely }: Database) =>
  kysely
    .selectFrom('mcp_bindings')
    .select('binding_id')
    .where('principal_type', '=', 'agent')
    .where('principal_id', '=', '')
    .where('resource_id', '=', '')

export async function boundResources(
  { kysely }: Database,
  type: PrincipalType,
  principalId: string,
): Promise<McpResource[]> {
  const rows = await kysely
    .selectFrom('mcp_bindings as b')
    .innerJoin('mcp_resources as r', 'r.resource_id', 'b.resource_id')
    .selectAll('r')
    .where('b.principal_type', '=', type)
    .where('b.principal_id', '=', principalId)
    .where('r.enabled', '=', 1)
    .orderBy('r.name')
    .execute()
  return rows.map(mcpResourceOf)
}

interface BindingFilter {
  readonly bindingId?: string | undefined
  readonly principalId?: string | undefined
  readonly resourceId?: string | undefined
}

export function listMcpBindings(
  db: Database,
  filter: BindingFilter = {},
  pause: PagePause = noPause,
): Promise<NamedMcpBinding[]> {
  return allPages((after, limit) => bindingsQuery(db, filter, after).limit(limit).execute(), pause)
}

/** Reads on after another binding by an index. Exported for the test of its query plan. */
export function bindingsQuery(
  { kysely }: Database,
  { bindingId, principalId, resourceId }: BindingFilter,
  after?: McpBinding,
) {
  // Not an inner join: the engine might begin with the resources, and sort. There is no binding without one.
  let query = kysely
    .selectFrom('mcp_bindings as b')
    .leftJoin('mcp_resources as r', 'r.resource_id', 'b.resource_id')
    .selectAll('b')
    .select(sql<string>`r.name`.as('resource_name'))
  if (bindingId !== undefined) query = query.where('b.binding_id', '=', bindingId)
  if (principalId !== undefined) query = query.where('b.principal_id', '=', principalId)
  if (resourceId !== undefined) query = query.where('b.resource_id', '=', resourceId)
  if (after)
    query = query.where(
      sql<boolean>`(b.created_at, b.binding_id) > (${after.created_at}, ${after.binding_id})`,
    )
  return query.orderBy('b.created_at').orderBy('b.binding_id')
}

interface NewMcpBinding extends Omit<McpBinding, 'created_at' | 'created_by'> {
  /** ms since the epoch. */
  readonly at: number
  readonly by?: string | undefined
}

/** Inserts a binding. The database refuses a second one, and one to a missing resource. */
export function insertMcpBinding(
  { kysely }: Database,
  { at, by, ...binding }: NewMcpBinding,
): LedgerStatement {
  const query = kysely.insertInto('mcp_bindings').values({
    ...binding,
    created_at: timestamp(at),
    created_by: by ?? null,
    changed_by: by ?? null,
  })
  return statementOf(query.compile(), 1)
}

export function deleteMcpBinding({ kysely }: Database, bindingId: string): LedgerStatement {
  return statementOf(kysely.deleteFrom('mcp_bindings').where('binding_id', '=', bindingId).compile(), 1)
}

export function deletePrincipalBindings(
  { kysely }: Database,
  type: PrincipalType,
  id: string,
): LedgerStatement {
  const own = kysely.deleteFrom('mcp_bindings').where('principal_type', '=', type)
  return statementOf(own.where('principal_id', '=', id).compile())
}

interface McpBindingState {
  readonly type: PrincipalType
  readonly principalId: string
  readonly resourceId: string
  readonly revision: number
  /** The id of the binding; null: there is none. */
  readonly binding: string | null
}

/**
 * Asserts that the basis of an MCP call's decision still holds: this revision of the resource (demands,
 * enabled, states of tools), and this binding or none.
 */
export type McpBindingAssertion = (standing: McpBindingState) => RowAssertion

export function mcpBindingAssertion({ kysely }: Database): McpBindingAssertion {
  const resource = kysely
    .selectFrom('mcp_resources')
    .select(sql.lit(1).as('holds'))
    .where('resource_id', '=', '')
    .where('revision', '=', 0)
  const binding = kysely
    .selectFrom('mcp_bindings')
    .select('binding_id')
    .where('principal_type', '=', 'agent')
    .where('principal_id', '=', '')
    .where('mcp_bindings.resource_id', '=', '')
  // Compared: `exists` would make a join, which SQLite plans again each time (measured: 13 µs, against 1.6).
  const bound = resource.where(binding, '=', '').compile().sql
  const unbound = resource.where((row) => row.not(row.exists(binding))).compile().sql
  return ({ type, principalId, resourceId, revision, binding: id }) => {
    const parameters = [resourceId, revision, type, principalId, resourceId]
    return id === null ? { sql: unbound, parameters } : { sql: bound, parameters: [...parameters, id] }
  }
}
