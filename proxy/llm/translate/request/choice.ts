import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import type { TranslationNotes } from '../losses.ts'
import type { ModelRequest, ToolDefinition } from '../model/request.ts'

interface ChoiceReading {
  readonly notes: TranslationNotes
  /** The object that lists the tools which may be called, and its place. Null: the choice is of another kind. */
  readonly allowed: UnknownRecord | null
  readonly at: string
  /** Returns the target's name of a tool that is chosen; null: it has none. */
  readonly named: (choice: unknown) => string | null
}

/** Reads the choice of tools in a request of OpenAI's. Notes one that names a tool which is not told. */
export function readChoice(
  choice: unknown,
  tools: readonly ToolDefinition[],
  { notes, allowed, at, named }: ChoiceReading,
): Pick<ModelRequest, 'choice' | 'tools'> {
  const toldName = (one: unknown): string | null => {
    const name = named(one)
    return tools.some((tool) => tool.name === name) ? name : null
  }
  if (choice === undefined) return { choice: null, tools }
  if (choice === 'auto' || choice === 'none') return { choice: { kind: choice }, tools }
  if (choice === 'required') return { choice: { kind: 'any' }, tools }
  const name = toldName(choice)
  if (name !== null) return { choice: { kind: 'tool', name }, tools }
  if (isObject(allowed) && Array.isArray(allowed.tools)) {
    const kept = new Set(allowed.tools.map(toldName))
    notes.carry('allowed_tools')
    if (kept.has(null)) notes.never('tool_choice', `${at}.tools`)
    const kind = allowed.mode === 'required' ? 'any' : 'auto'
    return { choice: { kind }, tools: tools.filter((tool) => kept.has(tool.name)) }
  }
  notes.never('tool_choice', 'tool_choice')
  return { choice: null, tools }
}
