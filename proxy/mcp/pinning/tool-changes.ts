import type { McpTool } from '../../../db/mcp/tools.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { escapeHidden, printJsonPath, truncateText } from '../../visible.ts'
import { definitionThreads, MAX_INLINE_BYTES } from '../aside/aside.ts'
import type { McpThreadTasks } from '../aside/messages.ts'

type ChangePath = readonly (string | number)[]

const MAX_CHANGES = 50
const MAX_VALUE = 120
const MAX_PLACE = 200
/** The amount of a text that both have in common that is quoted before and after the change. Characters. */
const CONTEXT = 20

/** Says what would change if the pending definition of a tool were approved; for large ones on a thread. */
export function pendingChanges(tool: McpTool): readonly string[] | Promise<readonly string[]> {
  const { resource_id: key, definition: pinned, pending_definition: pending } = tool
  const asked = { pinned, pending: pending ?? '{}' }
  if ((pinned?.length ?? 0) + asked.pending.length <= MAX_INLINE_BYTES) return changesBetween(asked)
  return definitionThreads.ask('changesBetween', asked, { key })
}

export const changesBetween: McpThreadTasks['changesBetween'] = ({ pinned, pending }) =>
  definitionChanges(pinned, membersOf(pending))

/** Compares a definition with the pinned one, JSON text. A new tool is told whole. */
export const definitionChanges = (pinned: string | null, after: UnknownRecord): readonly string[] =>
  pinned === null ? ['new tool', ...toolChanges({}, after)] : toolChanges(membersOf(pinned), after)

function membersOf(definition: string): UnknownRecord {
  const value: unknown = JSON.parse(definition)
  return isObject(value) ? value : {}
}

/**
 * Compares two definitions of a tool, for an operator to read: a line for each changed place, values as JSON,
 * cut at 120 characters, hidden characters as `\u{200b}`. At most 50 lines, then how many more.
 */
export function toolChanges(before: UnknownRecord, after: UnknownRecord): readonly string[] {
  const lines: string[] = []
  let more = 0
  const note: NoteChange = (path, change) => {
    if (lines.length === MAX_CHANGES) more += 1
    else lines.push(`${truncateText(printJsonPath(path), MAX_PLACE)}: ${change()}`)
  }
  compareMembers(before, after, [], note)
  return more === 0 ? lines : [...lines, `and ${more} more`]
}

/** Notes a change. Its text is made only if there is room for it. */
type NoteChange = (path: ChangePath, change: () => string) => void

function compare(before: unknown, after: unknown, path: ChangePath, note: NoteChange): void {
  if (isObject(before) && isObject(after)) compareMembers(before, after, path, note)
  else if (Array.isArray(before) && Array.isArray(after)) compareItems(before, after, path, note)
  else if (typeof before === 'string' && typeof after === 'string' && before !== after) {
    note(path, () => differingParts(before, after).map(quoteValue).join(' → '))
  } else if (before !== after) note(path, () => `${quoteValue(before)} → ${quoteValue(after)}`)
}

function compareMembers(
  before: UnknownRecord,
  after: UnknownRecord,
  path: ChangePath,
  note: NoteChange,
): void {
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
    const inner = [...path, name]
    if (!Object.hasOwn(before, name)) note(inner, () => `added ${quoteValue(after[name])}`)
    else if (!Object.hasOwn(after, name)) note(inner, () => `removed ${quoteValue(before[name])}`)
    else compare(before[name], after[name], inner, note)
  }
}

function compareItems(
  before: readonly unknown[],
  after: readonly unknown[],
  path: ChangePath,
  note: NoteChange,
): void {
  for (let index = 0; index < Math.max(before.length, after.length); index += 1) {
    const inner = [...path, index]
    if (index >= before.length) note(inner, () => `added ${quoteValue(after[index])}`)
    else if (index >= after.length) note(inner, () => `removed ${quoteValue(before[index])}`)
    else compare(before[index], after[index], inner, note)
  }
}

/** Cuts two texts down to the part that differs: a change must not hide behind a long common beginning. */
function differingParts(before: string, after: string): readonly string[] {
  const shorter = Math.min(before.length, after.length)
  let start = 0
  while (start < shorter && before[start] === after[start]) start += 1
  let end = 0
  while (end < shorter - start && before.at(-1 - end) === after.at(-1 - end)) end += 1
  const from = Math.max(0, start - CONTEXT)
  const kept = Math.max(0, end - CONTEXT)
  const part = (text: string): string =>
    `${from > 0 ? '…' : ''}${text.slice(from, text.length - kept)}${kept > 0 ? '…' : ''}`
  return [part(before), part(after)]
}

const quoteValue = (value: unknown): string =>
  truncateText(escapeHidden(JSON.stringify(value) ?? 'nothing'), MAX_VALUE)
