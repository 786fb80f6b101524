import type { McpTool, PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { timestamp } from '../../../db/statement.ts'
import type { ListedTool } from './tool-definition.ts'

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
  readonly listed: readonly ListedTool[]
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
  const changed = listed.flatMap((tool): readonly McpTool[] => {
    const row = rows.get(tool.name)
    if (row) return comparedWith(row, tool, now)
    return [first ? approvedNow(resourceId, tool, now) : newcomer(resourceId, tool, now)]
  })
  const changes = new Map(listed.map(({ name, news }) => [name, news?.changes ?? []]))
  const quarantined = changed
    .filter(({ state }) => state === 'quarantined')
    .map(({ name, pending_digest: digest }) => ({
      tool: name,
      changes: changes.get(name) ?? [],
      digest: digest ?? '',
    }))
  return { tools: [...gone, ...changed], quarantined }
}

/** Makes the row as it is to be, or nothing where it stays as it is. */
function comparedWith(row: McpTool, { digest, text, news }: ListedTool, now: string): readonly McpTool[] {
  if (news === null) return []
  const { flags } = news
  if (digest === row.digest) {
    const settled = { pending_definition: null, pending_digest: null }
    return [{ ...row, ...settled, state: 'approved', flags, changed_at: now }]
  }
  const pending = { pending_definition: text, pending_digest: digest }
  return [{ ...row, ...pending, state: 'quarantined', flags, changed_at: now }]
}

function approvedNow(resourceId: string, tool: ListedTool, now: string): PinnedMcpTool {
  const { name, text, digest, news } = tool
  return {
    resource_id: resourceId,
    name,
    definition: text,
    digest,
    state: 'approved',
    pending_definition: null,
    pending_digest: null,
    flags: news?.flags ?? [],
    pinned_at: now,
    changed_at: null,
  }
}

function newcomer(resourceId: string, tool: ListedTool, now: string): McpTool {
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
