import { type Selectable, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema, McpToolState } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

interface KnownMcpTool {
  readonly resource_id: string
  readonly name: string
  readonly state: McpToolState
  /** The definition that waits for approval, or null. */
  readonly pending_definition: string | null
  readonly pending_digest: string | null
  /** True: `digest` covers the whole definition. False: six members alone, as an earlier version made it. */
  readonly digest_is_whole: boolean
  /** The same for `pending_digest`. */
  readonly pending_is_whole: boolean
  readonly flags: readonly string[]
  readonly changed_at: string | null
}

export interface PinnedMcpTool extends KnownMcpTool {
  /** JSON text exactly as pinned. */
  readonly definition: string
  /** Lower-case hex. */
  readonly digest: string
  readonly pinned_at: string
}

interface UnpinnedMcpTool extends KnownMcpTool {
  readonly definition: null
  readonly digest: null
  readonly pinned_at: null
}

export type McpTool = PinnedMcpTool | UnpinnedMcpTool

type McpToolRow = Selectable<DatabaseSchema['mcp_tools']>
type McpToolLookup = McpTool | undefined | Promise<McpTool | undefined>

export async function listMcpTools({ kysely }: Database, resourceId: string): Promise<McpTool[]> {
  const own = kysely.selectFrom('mcp_tools').selectAll().where('resource_id', '=', resourceId)
  return (await own.orderBy('name').execute()).map(toolOf)
}

export function mcpToolByName(db: Database): (resourceId: string, name: string) => McpToolLookup {
  const lookup = db.lookup(mcpToolByNameQuery(db))
  return (resourceId, name) => {
    const row = lookup(resourceId, name)
    return row instanceof Promise ? row.then((found) => found && toolOf(found)) : row && toolOf(row)
  }
}

/** Parameters: the resource's id and the name. Exported for the test of its query plan. */
export const mcpToolByNameQuery = ({ kysely }: Database) =>
  kysely.selectFrom('mcp_tools').selectAll().where('resource_id', '=', '').where('name', '=', '')

/** The resource's one tool that is not gone, for the hot path; undefined if it has none, or several. */
export function onlyMcpTool(db: Database): (resourceId: string) => McpToolLookup {
  const count = db.lookup(onlyMcpToolQuery(db))
  const byName = mcpToolByName(db)
  return (resourceId) => {
    const row = count(resourceId)
    const named = (some: typeof row): McpToolLookup =>
      some && !(some instanceof Promise) && Number(some.total) === 1
        ? byName(resourceId, some.name)
        : undefined
    return row instanceof Promise ? row.then(named) : named(row)
  }
}

/** Counts to two at most. Its one parameter is the resource's id. Exported for the test of its query plan. */
export const onlyMcpToolQuery = ({ kysely }: Database) =>
  kysely
    .selectFrom((some) =>
      some
        .selectFrom('mcp_tools')
        .select('name')
        .where('resource_id', '=', '')
        .where('state', '<>', sql.lit('gone' as const))
        .limit(sql.lit(2))
        .as('some'),
    )
    .select((select) => [select.fn.min('name').as('name'), select.fn.countAll().as('total')])

export async function countQuarantinedTools({ kysely }: Database): Promise<number> {
  // A literal: the planner uses the partial index only if it sees the constant.
  const { total } = await kysely
    .selectFrom('mcp_tools')
    .select((select) => select.fn.countAll<number>().as('total'))
    .where('state', '=', sql.lit('quarantined' as const))
    .executeTakeFirstOrThrow()
  return total
}

/** Tells if a tool, by the name that callers know it by (`<resource>.<tool>`), waits for an approval. */
export async function isToolQuarantined({ kysely }: Database, exposed: string): Promise<boolean> {
  const found = await kysely
    .selectFrom('mcp_tools as t')
    .innerJoin('mcp_resources as r', 'r.resource_id', 't.resource_id')
    .select('t.resource_id')
    .where('t.state', '=', sql.lit('quarantined' as const))
    .where(sql`r.name || '.' || t.name`, '=', exposed)
    .executeTakeFirst()
  return found !== undefined
}

function toolOf({ flags: text, definition, digest, pinned_at, ...stored }: McpToolRow): McpTool {
  const { digest_is_whole: isWhole, pending_is_whole: pendingIsWhole } = stored
  const row = { ...stored, digest_is_whole: isWhole === 1, pending_is_whole: pendingIsWhole === 1 }
  // Proven by putMcpTool, which alone writes the column.
  const flags = text === '[]' ? NONE : (JSON.parse(text) as readonly string[])
  // The table has the empty text if a tool was never approved.
  return digest === ''
    ? { ...row, flags, definition: null, digest: null, pinned_at: null }
    : { ...row, flags, definition, digest, pinned_at }
}

const NONE: readonly string[] = Object.freeze([])

/**
 * Stores a tool as found. A known one keeps its pinned definition, digest and `pinned_at`; with another
 * digest no row changes, unless it is the whole one of the very text that an earlier version approved:
 * {@link approveMcpTool} alone replaces those.
 */
export function putMcpTool({ kysely }: Database, { flags, ...tool }: McpTool): LedgerStatement {
  const { digest_is_whole: isWhole, pending_is_whole: pendingIsWhole } = tool
  const whole = { digest_is_whole: isWhole ? 1 : 0, pending_is_whole: pendingIsWhole ? 1 : 0 } as const
  const pinned = {
    definition: tool.definition ?? '',
    digest: tool.digest ?? '',
    pinned_at: tool.pinned_at ?? '',
  }
  const query = kysely
    .insertInto('mcp_tools')
    .values({ ...tool, ...pinned, ...whole, flags: JSON.stringify(flags) })
    .onConflict((known) =>
      known
        .columns(['resource_id', 'name'])
        .doUpdateSet((row) => ({
          digest: row.ref('excluded.digest'),
          digest_is_whole: row.ref('excluded.digest_is_whole'),
          state: row.ref('excluded.state'),
          pending_definition: row.ref('excluded.pending_definition'),
          pending_digest: row.ref('excluded.pending_digest'),
          pending_is_whole: row.ref('excluded.pending_is_whole'),
          flags: row.ref('excluded.flags'),
          changed_at: row.ref('excluded.changed_at'),
        }))
        .where((row) =>
          row.or([
            row('mcp_tools.digest', '=', row.ref('excluded.digest')),
            row.and([
              row('mcp_tools.digest_is_whole', '=', 0),
              row('mcp_tools.definition', '=', row.ref('excluded.definition')),
            ]),
          ]),
        ),
    )
  return statementOf(query.compile(), 1)
}

interface McpToolApproval {
  readonly resourceId: string
  readonly name: string
  /** The digest of the definition that was looked at: another one that waits meanwhile changes no row. */
  readonly pendingDigest: string
  /** ms since the epoch. */
  readonly at: number
  readonly flags: readonly string[]
}

/** The flag of a tool whose waiting definition an operator has rejected, until another one waits. */
export const REJECTED_FLAG = 'rejected'

/** Marks the pending definition as rejected. Changes no row if another one waits, or none. */
export function rejectMcpTool(
  { kysely }: Database,
  { resourceId, name, pendingDigest, flags }: Omit<McpToolApproval, 'at'>,
): LedgerStatement {
  const query = kysely
    .updateTable('mcp_tools')
    .set({ flags: JSON.stringify([...flags, REJECTED_FLAG]) })
    .where('resource_id', '=', resourceId)
    .where('name', '=', name)
    .where('state', '<>', 'gone')
    .where('pending_digest', '=', pendingDigest)
  return statementOf(query.compile(), 1)
}

/** Approves the pending definition. Changes no row if another one waits, or none. */
export function approveMcpTool({ kysely }: Database, approval: McpToolApproval): LedgerStatement {
  const query = kysely
    .updateTable('mcp_tools')
    .set((row) => ({
      // Never null if the digest below is not.
      definition: row.fn.coalesce('pending_definition', sql.lit('')),
      digest: approval.pendingDigest,
      digest_is_whole: row.ref('pending_is_whole'),
      state: 'approved' as const,
      pending_definition: null,
      pending_digest: null,
      pinned_at: timestamp(approval.at),
      flags: JSON.stringify(approval.flags.filter((flag) => flag !== REJECTED_FLAG)),
    }))
    .where('resource_id', '=', approval.resourceId)
    .where('name', '=', approval.name)
    .where('state', '<>', 'gone')
    .where('pending_digest', '=', approval.pendingDigest)
    .where('pending_definition', 'is not', null)
  return statementOf(query.compile(), 1)
}
