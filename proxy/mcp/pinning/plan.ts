import type { McpTool, PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { timestamp } from '../../../db/statement.ts'
import { pendingChanges } from './tool-changes.ts'
import type { ToolDefinition } from './tool-definition.ts'

/** The changes that a read of a resource's tools brings. */
export interface PinPlan {
  /** The rows to put, as they are to be: none that stays as it is. */
  readonly tools: readonly McpTool[]
  /** The tools that this read quarantined, each worth an audit row. */
  readonly quarantined: readonly Quarantine[]
}

interface Quarantine {
  readonly tool: string
  readonly changes: readonly string[]
  /** The digest of the definition that waits. */
  readonly digest: string
}

interface Read {
  readonly resourceId: string
  /** Every tool that the resource has a row of, gone ones too. */
  readonly known: readonly McpTool[]
  readonly listed: readonly ToolDefinition[]
  /** The resource was never read before: what it lists is taken as approved. */
  readonly first: boolean
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Compares what an upstream lists with what is pinned (docs/threats.md#threat-17). A definition whose digest
 * is not the pinned one, and a tool that was not there at the first read, are quarantined; the pinned one
 * stays as it is beside them, also where a field differs that the digest leaves out. A tool that is no longer
 * listed is gone, and comes back approved only with the pinned digest. The same read again changes nothing.
 */
export function planPins({ resourceId, known, listed, first, at }: Read): PinPlan {
  const rows = new Map(known.map((row) => [row.name, row]))
  const names = new Set(listed.map(({ name }) => name))
  const now = timestamp(at)
  const gone = known
    .filter(({ name, state }) => state !== 'gone' && !names.has(name))
    .map((row): McpTool => ({ ...row, state: 'gone', changed_at: now }))
  const changed = listed.flatMap((tool) => {
    const row = rows.get(tool.name)
    if (row) return comparedWith(row, tool, now)
    return first ? approvedNow(resourceId, tool, now) : newcomer(resourceId, tool, now)
  })
  const quarantined = changed.filter(({ state }) => state === 'quarantined').map(quarantineOf)
  return { tools: [...gone, ...changed], quarantined }
}

/** Makes the row as it is to be, or nothing where it stays as it is. */
function comparedWith(
  row: McpTool,
  { digest, text, flags }: ToolDefinition,
  now: string,
): readonly McpTool[] {
  if (digest === row.digest) {
    if (row.state === 'approved') return []
    const settled = { pending_definition: null, pending_digest: null }
    return [{ ...row, ...settled, state: 'approved', flags, changed_at: now }]
  }
  if (row.state === 'quarantined' && digest === row.pending_digest) return []
  const pending = { pending_definition: text, pending_digest: digest }
  return [{ ...row, ...pending, state: 'quarantined', flags, changed_at: now }]
}

function approvedNow(resourceId: string, tool: ToolDefinition, now: string): PinnedMcpTool {
  const { name, text, digest, flags } = tool
  return {
    resource_id: resourceId,
    name,
    definition: text,
    digest,
    state: 'approved',
    pending_definition: null,
    pending_digest: null,
    flags,
    pinned_at: now,
    changed_at: null,
  }
}

function newcomer(resourceId: string, tool: ToolDefinition, now: string): McpTool {
  return {
    ...approvedNow(resourceId, tool, now),
    definition: null,
    digest: null,
    pinned_at: null,
    state: 'quarantined',
    pending_definition: tool.text,
    pending_digest: tool.digest,
  }
}

const quarantineOf = (tool: McpTool): Quarantine => ({
  tool: tool.name,
  changes: pendingChanges(tool),
  digest: tool.pending_digest ?? '',
})
