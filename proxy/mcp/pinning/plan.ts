import type { McpTool, PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { hasFoldedMembers, type ListedTool } from './tool-definition.ts'

export interface PinPlan {
  /** The rows to put, as they are to be: none that stays as it is. */
  readonly tools: readonly McpTool[]
  /** The tools that this read quarantined, each worth an audit row. */
  readonly quarantined: readonly Quarantine[]
}

interface Quarantine {
  readonly tool: string
  readonly changes: readonly string[]
  readonly digest: string
}

interface PinPlanInput {
  readonly resourceId: string
  readonly known: readonly McpTool[]
  readonly listed: readonly ListedTool[]
  /** Null: the whole list was read. Else the names that were skipped in the part that was read. */
  readonly unread: ReadonlySet<string> | null
  /** The resource was never read before: its list is taken as approved. */
  readonly first: boolean
  /** ms since the epoch. */
  readonly at: number
}

/**
 * Compares an upstream's list with the pins (docs/threats.md#threat-17). Quarantines a definition whose
 * digest is not the pinned one, a tool that was not there at the first read, and at any read one with members
 * that fold onto known ones. A tool that is no longer listed, or was skipped, is gone, and comes back
 * approved only with the pinned digest. The same read again changes nothing.
 */
export function planPins({ resourceId, known, listed, unread, first, at }: PinPlanInput): PinPlan {
  const rows = new Map(known.map((row) => [row.name, row]))
  const names = new Set(listed.map(({ name }) => name))
  const now = timestamp(at)
  const gone = known
    .filter(({ name, state }) => state !== 'gone' && !names.has(name) && (unread?.has(name) ?? true))
    .map((row): McpTool => ({ ...row, state: 'gone', changed_at: now }))
  const changed = listed.flatMap((tool): readonly McpTool[] => {
    const row = rows.get(tool.name)
    if (row) return comparedWith(row, tool, now)
    const isTrusted = first && !(tool.news && hasFoldedMembers(tool.news))
    return [isTrusted ? approvedRow(resourceId, tool, now) : quarantinedRow(resourceId, tool, now)]
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

function comparedWith(row: McpTool, listed: ListedTool, now: string): readonly McpTool[] {
  const { digest, earlierDigest, text, news } = listed
  const isEarlier = row.digest !== null && !row.digest_is_whole && earlierDigest === row.digest
  if (isEarlier && row.state === 'approved') return besideEarlier(row, listed, now)
  if (news === null) return []
  const { flags } = news
  if (digest === row.digest || isEarlier) {
    const settled = { pending_definition: null, pending_digest: null }
    return [{ ...row, ...settled, state: 'approved', flags, changed_at: now }]
  }
  const pending = { pending_definition: text, pending_digest: digest, pending_is_whole: true }
  return [{ ...row, ...pending, state: 'quarantined', flags, changed_at: now }]
}

/**
 * A pin of an earlier version whose six members are as they were. If the text is the approved one, its digest
 * covers it whole from now on; else it waits, and the approved part serves on.
 */
function besideEarlier(row: McpTool, { text, digest }: ListedTool, now: string): readonly McpTool[] {
  if (row.digest !== null && text === row.definition) {
    const settled = { pending_definition: null, pending_digest: null }
    return [{ ...row, ...settled, digest, digest_is_whole: true, changed_at: now }]
  }
  if (row.pending_digest === digest) return []
  const pending = { pending_definition: text, pending_digest: digest, pending_is_whole: true }
  return [{ ...row, ...pending, changed_at: now }]
}

function approvedRow(resourceId: string, tool: ListedTool, now: string): PinnedMcpTool {
  const { name, text, digest, news } = tool
  return {
    resource_id: resourceId,
    name,
    definition: text,
    digest,
    digest_is_whole: true,
    state: 'approved',
    pending_definition: null,
    pending_digest: null,
    pending_is_whole: true,
    flags: news?.flags ?? [],
    pinned_at: now,
    changed_at: null,
  }
}

function quarantinedRow(resourceId: string, tool: ListedTool, now: string): McpTool {
  return {
    ...approvedRow(resourceId, tool, now),
    definition: null,
    digest: null,
    pinned_at: null,
    state: 'quarantined',
    pending_definition: tool.text,
    pending_digest: tool.digest,
  }
}
