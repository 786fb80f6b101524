import type { Database } from '../../../db/database.ts'
import { LedgerError } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { MAX_TOOLS_PER_ROW, resourceAuthority, toolsDetail } from '../../../db/mcp/authority.ts'
import { type McpResource, recordMcpReading } from '../../../db/mcp/resources.ts'
import { type McpTool, putMcpTool } from '../../../db/mcp/tools.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import { type AuditNote, noteEntry } from '../../../plugins/audit/entries.ts'
import { runInSlices, type WorkSteps } from '../../../plugins/turns.ts'
import type { ProtocolEra } from '../protocol/versions.ts'
import type { UpstreamInspection } from './inspect.ts'
import { type IntroductionPlan, planIntroduction } from './introduction.ts'
import type { PinPlan } from './plan.ts'

/** The quarantined tools of one read that have rows of their own, with their differences. */
const MAX_OWN = 64
/** The most differences that one row keeps: characters, as JSON. */
const MAX_DIFFERENCE = 24_576
/** The amount that all rows of one read keep. Characters, as JSON. */
const MAX_DIFFERENCES = 262_144
const MAX_LINE = 1_024
const MAX_PROBLEM = 512

export interface AppliedRead {
  readonly statements: readonly LedgerStatement[]
  readonly notes: readonly AuditNote[]
}

/**
 * Works out the changes that a read of the upstream brings, and their audit rows (docs/ledger.md#resources),
 * each of which raises the resource's revision by 1. Beyond 64 quarantined tools one row stands for many,
 * without differences. The unit is refused as a `conflict` if the read was overtaken by a change of the
 * resource or by another read.
 */
export async function applyRead(
  { database, at }: { readonly database: Database; readonly at: number },
  resource: McpResource,
  result: UpstreamInspection,
): Promise<AppliedRead> {
  if (!result.ok) {
    return {
      statements: [recordMcpReading(database, resource, { problem: sentence(result.problem) })],
      notes: [],
    }
  }
  const { era, protocolVersion, pins, problem = null } = result
  const { server_facts: before, last_read_at: readAt } = resource
  const introduction = planIntroduction(before, result.facts, readAt === null)
  const { facts } = introduction
  const said = [
    ...eraNotes(resource, era),
    ...pinNotes(pins),
    ...introductionNotes(introduction),
    ...quarantineNotes(resource, pins),
  ]
  const notes = said.map((note, index) => ({
    ...note,
    detail: {
      subject: resource.resource_id,
      ...resourceAuthority(resource, resource.revision + 1 + index),
      ...note.detail,
    },
  }))
  const found = { era, protocolVersion, facts, at, problem: problem && sentence(problem) }
  const read = recordMcpReading(database, resource, found, notes.length)
  const puts = await runInSlices(putAll(database, pins.tools))
  return { statements: [read, ...puts], notes }
}

/** Making a statement takes some 0.1 ms, and there may be thousands. */
function* putAll(database: Database, tools: readonly McpTool[]): WorkSteps<readonly LedgerStatement[]> {
  const statements: LedgerStatement[] = []
  for (const tool of tools) {
    statements.push(putMcpTool(database, tool))
    yield
  }
  return statements
}

interface StoreReadContext {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly configDigest: string
  /** ms since the epoch. */
  readonly at: number
}

/** Stores a read that no operator has asked for. Resolves with false if it was overtaken. */
export async function storeRead(
  { database, ledger, configDigest, at }: StoreReadContext,
  resource: McpResource,
  result: UpstreamInspection,
): Promise<boolean> {
  const { statements, notes } = await applyRead({ database, at }, resource, result)
  try {
    await ledger.commit({ statements, entries: notes.map((note) => noteEntry(note, at, configDigest)) })
    return true
  } catch (error) {
    if (error instanceof LedgerError && error.code === 'conflict') return false
    throw error
  }
}

const eraNotes = ({ era: before }: McpResource, era: ProtocolEra): readonly AuditNote[] =>
  before === null || before === era
    ? []
    : [{ action: 'mcp_resource.updated', detail: { era, previous_era: before } }]

function introductionNotes({ change, changes }: IntroductionPlan): readonly AuditNote[] {
  if (change === null) return []
  const detail = {
    ...change,
    ...(changes.length > 0 && { server_changes: limitChanges(changes, MAX_DIFFERENCE) }),
  }
  return [{ action: 'mcp_resource.updated', detail }]
}

function pinNotes({ tools }: PinPlan): readonly AuditNote[] {
  return portionsOf(
    tools.filter(({ state }) => state !== 'quarantined'),
    MAX_TOOLS_PER_ROW,
  ).map((portion) => {
    const approved = portion.filter(({ state }) => state === 'approved').map(({ name }) => name)
    const detail = {
      approved: approved.sort(),
      approved_count: approved.length,
      gone: [],
      gone_count: portion.length - approved.length,
      ...toolsDetail(portion),
    }
    return { action: 'mcp_resource.updated', detail }
  })
}

function quarantineNotes({ name }: McpResource, { quarantined: all }: PinPlan): readonly AuditNote[] {
  const action = 'mcp_resource.tool_quarantined'
  const limit = Math.min(MAX_DIFFERENCE, Math.floor(MAX_DIFFERENCES / all.length))
  const own = all.slice(0, MAX_OWN).map(({ tool, digest, changes }) => ({
    action,
    detail: { tool, digest, changes: limitChanges(changes, limit), quarantined: [[tool, digest]] },
    tool: `${name}.${tool}`,
  }))
  // Each row says all that the operator has set, so an upstream must not choose their number.
  const others = portionsOf(all.slice(MAX_OWN), MAX_TOOLS_PER_ROW).map((portion) => ({
    action,
    detail: { quarantined: portion.map(({ tool, digest }) => [tool, digest]) },
  }))
  return [...own, ...others]
}

function limitChanges(changes: readonly string[], limit: number): readonly string[] {
  const kept: string[] = []
  let size = 0
  for (const change of changes) {
    const line = change.slice(0, MAX_LINE)
    size += JSON.stringify(line).length
    if (size > limit) return [...kept, `and ${changes.length - kept.length} more`]
    kept.push(line)
  }
  return kept
}

/** Writes a problem for a person to read: on one line, with nothing that an upstream could hide in it. */
const sentence = (problem: string): string =>
  problem.slice(0, MAX_PROBLEM).replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ')
