import { type Selectable, sql } from 'kysely'
import type { Database } from '../database.ts'
import {
  type ApprovalRule,
  NO_TOOL_APPROVALS,
  type ToolApprovals,
} from '../ledger/approvals/approval-rule.ts'
import type { MinProof } from '../ledger/authority/rule.ts'
import type { DatabaseSchema, McpAuthType, McpEra } from '../schema.ts'
import { boundedCache } from '../support/bounded-cache.ts'
import type { JsonObject } from '../support/json.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'
import type { OAuthSettings } from './accounts.ts'

/** An MCP server as an operator describes it. Parsed by the code that took it from a caller. */
export interface McpResourceFields extends ApprovalRule {
  /** Unique, and never the beginning of another one's name up to a dot. */
  readonly name: string
  readonly description: string | null
  readonly endpoint_url: string
  readonly auth_type: McpAuthType
  /** `env:MCP_SECRET_…` or `file:/path`; null with `none` and `oauth`. Never the secret itself. */
  readonly auth_secret_ref: string | null
  /** The authorization server of its accounts; null: its `auth_type` is not `oauth`. */
  readonly oauth: OAuthSettings | null
  /** Demanded for any of its tools not in `tool_capabilities`; null: the binding alone (spec §2.3). */
  readonly required_capability: string | null
  /** Host names, lower case. Empty: the endpoint's own host alone. */
  readonly allowed_domains: readonly string[]
  readonly enabled: boolean
  /** Keyed by tool name. Without a prototype: a tool may be called `constructor`. */
  readonly tool_capabilities: Readonly<Record<string, string>>
  /** The time in which a call must be approved, and made. s. */
  readonly approval_ttl_s: number
  /** The time that a call is held, in which it may be approved. s. */
  readonly approval_wait_s: number
  /** The least proof that it takes of a caller, for each tool not in `tool_min_proof`. */
  readonly min_proof: MinProof
  /** Keyed by tool name, as the other. */
  readonly tool_min_proof: Readonly<Record<string, MinProof>>
}

/** The rule of a resource whose calls nobody must approve. */
export const NO_APPROVALS = {
  approval: null,
  tool_approvals: NO_TOOL_APPROVALS,
  approval_ttl_s: 600,
  approval_wait_s: 0,
} as const satisfies Partial<McpResourceFields>

/** An MCP server behind this gateway (spec §2.4). Timestamps are RFC 3339. */
export interface McpResource extends McpResourceFields {
  readonly resource_id: string
  /**
   * The ETag, and the number that decisions name: counts rows that change its demands or tools
   * (docs/ledger.md#resources). A reading that finds nothing new leaves it.
   */
  readonly revision: number
  readonly created_at: string
  readonly updated_at: string
  /** The era that the upstream was found to speak; null until it was read at this endpoint. */
  readonly era: McpEra | null
  readonly protocol_version: string | null
  /** `capabilities`, `serverInfo`, `instructions`; `legacy`: it speaks the older revisions too. */
  readonly server_facts: Readonly<Record<string, unknown>> | null
  /** The instant of the last read that went well. Null: its tools were never pinned. */
  readonly last_read_at: string | null
  /** The reason that the last read failed, or ended early, in one sentence; null if it went well. */
  readonly last_error: string | null
  /** Names in the ledger: who registered it, and who changed it last. Null: unknown. */
  readonly created_by: string | null
  readonly changed_by: string | null
}

type McpResourceRow = Selectable<DatabaseSchema['mcp_resources']>

export async function listMcpResources({ kysely }: Database): Promise<McpResource[]> {
  const rows = await kysely.selectFrom('mcp_resources').selectAll().orderBy('name').execute()
  return rows.map(mcpResourceOf)
}

export async function findMcpResource({ kysely }: Database, id: string): Promise<McpResource | undefined> {
  const found = kysely.selectFrom('mcp_resources').selectAll().where('resource_id', '=', id)
  const row = await found.executeTakeFirst()
  return row && mcpResourceOf(row)
}

/** Finds a resource by name, for the hot path. Asks each time; an unchanged row is the same object. */
export function mcpResourceByName(
  db: Database,
): (name: string) => McpResource | undefined | Promise<McpResource | undefined> {
  const lookup = db.lookup(mcpResourceByNameQuery(db))
  const last = boundedCache<{ readonly row: McpResourceRow; readonly resource: McpResource }>(1024)
  const kept = (name: string, row: McpResourceRow | undefined): McpResource | undefined => {
    if (!row) return undefined
    const known = last.get(name)
    if (known && isSame(known.row, row)) return known.resource
    const resource = Object.freeze(mcpResourceOf(row))
    last.set(name, { row, resource })
    return resource
  }
  return (name) => {
    const row = lookup(name)
    return row instanceof Promise ? row.then((found) => kept(name, found)) : kept(name, row)
  }
}

function isSame(one: McpResourceRow, other: McpResourceRow): boolean {
  for (const column in other)
    if (one[column as keyof McpResourceRow] !== other[column as keyof McpResourceRow]) return false
  return true
}

/** Takes the name alone. Exported for the test of its query plan. */
export const mcpResourceByNameQuery = ({ kysely }: Database) =>
  kysely.selectFrom('mcp_resources').selectAll().where('name', '=', '')

/** Counts enabled resources whose last read failed. A disabled one is not read. */
export async function countUnreadableResources({ kysely }: Database): Promise<number> {
  const { total } = await kysely
    .selectFrom('mcp_resources')
    .select((select) => select.fn.countAll<number>().as('total'))
    // A literal: the planner uses the partial index only if it sees the constant.
    .where('enabled', '=', sql.lit(1 as const))
    .where('last_error', 'is not', null)
    .executeTakeFirstOrThrow()
  return total
}

export function mcpResourceOf(row: McpResourceRow): McpResource {
  return {
    ...row,
    enabled: row.enabled === 1,
    // Proven by insert and update below, which alone write these columns.
    allowed_domains: read(row.allowed_domains) as readonly string[],
    oauth: row.oauth === null ? null : (read(row.oauth) as OAuthSettings),
    tool_capabilities: read(row.tool_capabilities) as Readonly<Record<string, string>>,
    tool_approvals: read(row.tool_approvals) as ToolApprovals,
    tool_min_proof: read(row.tool_min_proof) as Readonly<Record<string, MinProof>>,
    server_facts:
      row.server_facts === null ? null : (read(row.server_facts) as Readonly<Record<string, unknown>>),
  }
}

/** The texts read last: a request must not pay for parsing an unchanged text. */
const parsedTexts = boundedCache<object>(1024)

function read(text: string): unknown {
  const known = parsedTexts.get(text)
  if (known !== undefined) return known
  const value = freezeObject(JSON.parse(text))
  parsedTexts.set(text, value)
  return value
}

function freezeObject(value: unknown): object {
  if (typeof value !== 'object' || value === null)
    throw new Error('a stored MCP resource holds no JSON object')
  return Object.freeze(Array.isArray(value) ? value : Object.assign(Object.create(null), value))
}

interface NewMcpResource extends McpResourceFields {
  readonly resource_id: string
  /** ms since the epoch. */
  readonly at: number
  /** The author's name in the ledger. Absent: unknown. */
  readonly by?: string | undefined
}

/** Inserts a resource, never read yet. `rejectNameCollision` (db/mcp/names.ts) goes after it. */
export function insertMcpResource(
  { kysely }: Database,
  { at, by, resource_id, ...fields }: NewMcpResource,
): LedgerStatement {
  const query = kysely.insertInto('mcp_resources').values({
    resource_id,
    ...columnsOf(fields),
    created_at: timestamp(at),
    updated_at: timestamp(at),
    era: null,
    protocol_version: null,
    server_facts: null,
    last_read_at: null,
    last_error: null,
    created_by: by ?? null,
    changed_by: by ?? null,
  })
  return statementOf(query.compile(), 1)
}

interface McpResourceChange extends McpResourceFields {
  readonly introduction?: JsonObject
  readonly at: number
  readonly by?: string | undefined
}

/**
 * Replaces a resource's description if its revision is the one that was read. A new endpoint forgets facts,
 * but not the approved ones: tools, and `introduction`.
 */
export function updateMcpResource(
  { kysely }: Database,
  { resource_id: id, revision, endpoint_url: endpoint }: McpResource,
  { at, by, introduction, ...fields }: McpResourceChange,
): LedgerStatement {
  const kept = introduction ? JSON.stringify(introduction) : null
  const query = kysely
    .updateTable('mcp_resources')
    .set({ ...columnsOf(fields), updated_at: timestamp(at), changed_by: by ?? null })
    .set((row) => ({ revision: row('revision', '+', 1) }))
    .$if(endpoint !== fields.endpoint_url, (moved) =>
      moved.set({ era: null, protocol_version: null, server_facts: kept }),
    )
    .where('resource_id', '=', id)
    .where('revision', '=', revision)
  return statementOf(query.compile(), 1)
}

/** Raises the revision by the number of rows about a change of tools; a stale revision changes no row. */
export function raiseMcpRevision(
  { kysely }: Database,
  { resource_id: id, revision }: Pick<McpResource, 'resource_id' | 'revision'>,
  times: number,
  by?: string,
): LedgerStatement {
  const query = kysely
    .updateTable('mcp_resources')
    .set({ revision: revision + times, ...(by !== undefined && { changed_by: by }) })
    .where('resource_id', '=', id)
    .where('revision', '=', revision)
  return statementOf(query.compile(), 1)
}

/** Deletes a resource with its tools and bindings, if it is as it was read: one unit, in this order. */
export function deleteMcpResource(
  { kysely }: Database,
  { resource_id: id, revision }: Pick<McpResource, 'resource_id' | 'revision'>,
): readonly LedgerStatement[] {
  const own = kysely
    .deleteFrom('mcp_resources')
    .where('resource_id', '=', id)
    .where('revision', '=', revision)
  return [
    statementOf(kysely.deleteFrom('mcp_tools').where('resource_id', '=', id).compile()),
    statementOf(kysely.deleteFrom('mcp_bindings').where('resource_id', '=', id).compile()),
    statementOf(own.compile(), 1),
  ]
}

/**
 * The era and description of an upstream, and why a part could not be read; or why it could not be read at
 * all.
 */
export type McpReading =
  | {
      readonly era: McpEra
      readonly protocolVersion: string
      readonly facts: JsonObject
      /** ms since the epoch. */
      readonly at: number
      readonly problem?: string | null
    }
  | { readonly problem: string }

/**
 * Stores a read. Changes no row if the resource was changed, or read, meanwhile. A failed one leaves what the
 * last good one found. `rows`: the number of rows about changes, each of which raises the revision by 1.
 */
export function recordMcpReading(
  { kysely }: Database,
  { resource_id: id, revision, last_read_at: lastReadAt }: McpResource,
  found: McpReading,
  rows = 0,
): LedgerStatement {
  const set =
    'facts' in found
      ? {
          era: found.era,
          protocol_version: found.protocolVersion,
          server_facts: JSON.stringify(found.facts),
          last_read_at: timestamp(found.at),
          last_error: found.problem ?? null,
        }
      : { last_error: found.problem }
  const query = kysely
    .updateTable('mcp_resources')
    .set({ ...set, revision: revision + rows })
    .where('resource_id', '=', id)
    .where('revision', '=', revision)
    .where('last_read_at', lastReadAt === null ? 'is' : '=', lastReadAt)
  return statementOf(query.compile(), 1)
}

function columnsOf({
  enabled,
  allowed_domains: domains,
  tool_capabilities: own,
  tool_approvals: approvals,
  tool_min_proof: proofs,
  oauth,
  ...rest
}: McpResourceFields) {
  return {
    ...rest,
    enabled: enabled ? 1 : 0,
    allowed_domains: JSON.stringify(domains),
    tool_capabilities: JSON.stringify(own),
    tool_approvals: JSON.stringify(approvals),
    tool_min_proof: JSON.stringify(proofs),
    oauth: oauthText(oauth),
  } as const
}

/** The form in which settings are stored, and digested for rows: the same settings are the same text. */
export const oauthText = (settings: OAuthSettings | null): string | null =>
  settings &&
  JSON.stringify({
    issuer: settings.issuer,
    client_id: settings.client_id,
    client_secret_ref: settings.client_secret_ref,
    scopes: settings.scopes,
    reader: settings.reader,
  })
