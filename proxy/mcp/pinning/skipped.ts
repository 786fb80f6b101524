import { isObject, type JsonObject } from '../../../db/support/json.ts'
import { escapeHidden, truncateText } from '../../visible.ts'
import type { SkippedTool, SkippedTools } from '../upstream/tools.ts'

const MAX_NAME = 128

/** The tools of a server's list that were left out at the last reading, for an operator. */
export interface SkippedView {
  readonly count: number
  /** The first of them. Hidden characters of a name are escaped. */
  readonly tools: readonly SkippedTool[]
}

const NONE: SkippedView = { count: 0, tools: [] }

export function skippedFacts({ count, first }: SkippedTools): JsonObject {
  if (count === 0) return {}
  const tools = first.map(({ name, reason }) => ({ name: name === null ? null : shownName(name), reason }))
  return { skipped: { count, tools } }
}

export function skippedIn(facts: Readonly<Record<string, unknown>> | null): SkippedView {
  // Proven by skippedFacts: nothing of a server's own is stored there.
  return isObject(facts?.skipped) ? (facts.skipped as unknown as SkippedView) : NONE
}

const shownName = (name: string): string => truncateText(escapeHidden(name.slice(0, 2 * MAX_NAME)), MAX_NAME)
