import type { Database } from '../../../db/database.ts'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { listMcpTools } from '../../../db/mcp/tools.ts'
import { isObject, type JsonObject } from '../../../db/support/json.ts'
import { TaskIncompleteError, type TaskRequester } from '../../../db/support/thread.ts'
import { OWN_AUTHORITY } from '../../../plugins/call-authority.ts'
import type { OperatorPermit } from '../../../plugins/permit.ts'
import { escapeHidden, truncateText } from '../../visible.ts'
import { definitionThreads } from '../aside/aside.ts'
import type { ToolCandidate, ToolJudgement } from '../aside/messages.ts'
import type { ProtocolEra } from '../protocol/versions.ts'
import type { McpUpstream } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import type { SkippedTool, SkippedTools } from '../upstream/tools.ts'
import { type PinPlan, planPins } from './plan.ts'
import { judgeTools } from './tool-definition.ts'

export type UpstreamInspection =
  | {
      readonly ok: true
      readonly era: ProtocolEra
      readonly protocolVersion: string
      readonly facts: JsonObject
      readonly pins: PinPlan
      /** The reason why a part of its list could not be read; null or absent: all of it was. */
      readonly problem?: string | null
    }
  | { readonly ok: false; readonly problem: string }

/** Reads an upstream and works out what this changes. Never rejects because of the upstream. */
export type InspectUpstream = (resource: McpResource, signal: AbortSignal) => Promise<UpstreamInspection>

/** Finds further reasons to look closely at a definition, JSON text: a flag for each. Never rejects. */
export type FlagDefinition = (definition: string) => Promise<readonly string[]>

export const inspector =
  (
    database: Database,
    upstream: McpUpstream,
    clock: () => number,
    flagsOf: FlagDefinition | null = null,
  ): InspectUpstream =>
  async (resource, signal) => {
    try {
      // Made here alone: a resource is there because an operator has registered it.
      const permit = {
        kind: 'reading',
        authority: OWN_AUTHORITY,
        resourceId: resource.resource_id,
      } as OperatorPermit
      const reading = await upstream.read(permit, resource, signal)
      const { era, protocolVersion, skipped, unread } = reading
      const { resource_id: key } = resource
      const known = await listMcpTools(database, key)
      const listed = await judgeTools(reading, known, (asked) =>
        flagged(asked, judgeOffThread(asked, { key, signal }), flagsOf),
      )
      const pins = planPins({
        resourceId: resource.resource_id,
        known,
        listed,
        unread: unread === null ? null : skipped.names,
        first: resource.last_read_at === null,
        at: clock(),
      })
      const facts = { ...reading.facts, ...skippedFacts(skipped) }
      return { ok: true, era, protocolVersion, facts, pins, problem: unread }
    } catch (error) {
      return { ok: false, problem: problemOf(error) }
    }
  }

/** Gives up an inspection after `withinMs`. Waits for the end of its session too. */
export const inspectWithin =
  (inspect: InspectUpstream, withinMs: number): InspectUpstream =>
  async (resource, signal) => {
    const late = AbortSignal.timeout(withinMs)
    const inspection = await inspect(resource, AbortSignal.any([signal, late]))
    if (inspection.ok || signal.aborted || !late.aborted) return inspection
    return { ok: false, problem: `it did not answer in time (${withinMs} ms)` }
  }

/** Adds flags to a judgement that has news. */
async function flagged(
  { text }: ToolCandidate,
  judging: Promise<ToolJudgement>,
  flagsOf: FlagDefinition | null,
): Promise<ToolJudgement> {
  const judged = await judging
  if (!flagsOf || 'odd' in judged || judged.news === null) return judged
  const { flags } = judged.news
  return { ...judged, news: { ...judged.news, flags: [...flags, ...(await flagsOf(text))] } }
}

async function judgeOffThread(asked: ToolCandidate, asker: TaskRequester): Promise<ToolJudgement> {
  try {
    return await definitionThreads.ask('judgeTool', asked, asker)
  } catch (error) {
    if (!(error instanceof TaskIncompleteError)) throw error
    return { odd: 'its definition takes too long to judge' }
  }
}

function problemOf(error: unknown): string {
  if (error instanceof McpUpstreamError) return error.message
  return error instanceof Error ? error.message.slice(0, 256) : 'it could not be read'
}

const MAX_NAME = 128

/** The tools of a server's list that were left out at the last reading, for an operator. */
interface SkippedView {
  readonly count: number
  /** The first of them. Hidden characters of a name are escaped. */
  readonly tools: readonly SkippedTool[]
}

const NONE: SkippedView = { count: 0, tools: [] }

function skippedFacts({ count, first }: SkippedTools): JsonObject {
  if (count === 0) return {}
  const tools = first.map(({ name, reason }) => ({ name: name === null ? null : shownName(name), reason }))
  return { skipped: { count, tools } }
}

export function skippedIn(facts: Readonly<Record<string, unknown>> | null): SkippedView {
  // Proven by skippedFacts: nothing of a server's own is stored there.
  return isObject(facts?.skipped) ? (facts.skipped as unknown as SkippedView) : NONE
}

const shownName = (name: string): string => truncateText(escapeHidden(name.slice(0, 2 * MAX_NAME)), MAX_NAME)
