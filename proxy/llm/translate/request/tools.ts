import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import type { CarriedName, TranslationNotes } from '../losses.ts'
import type { ToolCallPart, ToolDefinition } from '../model/request.ts'
import { type CallerTool, isPlainId, isPlainName, type ToolNames, targetId } from '../names.ts'

const NO_PARAMETERS: UnknownRecord = { type: 'object', properties: {} }
/** The one parameter of a function that stands for a tool of free text. */
export const CUSTOM_INPUT = 'input'
const CUSTOM_PARAMETERS: UnknownRecord = {
  type: 'object',
  properties: { [CUSTOM_INPUT]: { type: 'string' } },
  required: [CUSTOM_INPUT],
  additionalProperties: false,
}

interface ToolFacts {
  readonly description: string | null
  readonly schema?: UnknownRecord | null
  readonly strict?: boolean | null
  readonly grammar?: string | null
}

/** Defines a function, or a tool of free text, under the target's name. */
export function defineTool(
  tool: CallerTool,
  { description, schema = null, strict = null, grammar = null }: ToolFacts,
  names: ToolNames,
  notes: TranslationNotes,
): ToolDefinition {
  const name = names.define(tool)
  noteName(tool, notes)
  if (!tool.isCustom) return { name, description, schema: schema ?? NO_PARAMETERS, strict }
  notes.carry('custom_tool')
  const bound =
    grammar === null ? description : `${description ?? ''}\n\nThe input follows this grammar:\n${grammar}`
  return { name, description: bound, schema: CUSTOM_PARAMETERS, strict: null }
}

interface CallFacts {
  readonly id: string
  /** JSON text, or the free text of a custom tool. */
  readonly input: string
  readonly parse: (text: string) => unknown
}

/** Reads a call of the history. Arguments that are no JSON object stand in one, as text. */
export function readCall(
  tool: CallerTool,
  { id, input, parse }: CallFacts,
  names: ToolNames,
  notes: TranslationNotes,
): ToolCallPart {
  noteName(tool, notes)
  const call = { kind: 'call', id: readId(id, notes), name: names.nameOf(tool) } as const
  if (tool.isCustom) {
    notes.carry('custom_tool')
    return { ...call, input: { [CUSTOM_INPUT]: input } }
  }
  const given = input.trim() === '' ? {} : parsedOrNothing(input, parse)
  if (isObject(given)) return { ...call, input: given }
  notes.carry('invalid_arguments')
  return { ...call, input: { invalid_arguments: input } }
}

function parsedOrNothing(text: string, parse: (text: string) => unknown): unknown {
  try {
    return parse(text)
  } catch {
    // A model wrote it: it is told as it stands.
    return undefined
  }
}

export function readId(id: string, notes: TranslationNotes): string {
  if (!isPlainId(id)) notes.carry('tool_id')
  return targetId(id)
}

function noteName({ name, namespace }: CallerTool, notes: TranslationNotes): void {
  const carried: CarriedName | null =
    namespace === null ? (isPlainName(name) ? null : 'tool_name') : 'namespace'
  if (carried) notes.carry(carried)
}
