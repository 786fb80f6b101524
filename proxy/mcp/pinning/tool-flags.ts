import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { hiddenCharacters, printJsonPath, truncateText } from '../../visible.ts'
import { usableSchema } from '../schema/arguments.ts'
import { textOrJsonArguments } from '../schema/text-or-json.ts'
import { headerParams } from './header-params.ts'

const MAX_FLAGS = 50
const MAX_FLAG = 250
const MAX_PLACE = 200

type FlagPath = readonly (string | number)[]

/**
 * Lists the reasons to look closely at a tool (docs/threats.md#threat-17), each a code with its subject: text
 * that hides (`invisible:`, `bidi:`, `tags:`), a schema that arguments cannot be checked against
 * (`dialect_unknown`, `schema_too_large`, `schema_unusable:`, `pattern_not_checked:`), arguments that may be
 * text or JSON (`text_or_json:`), and `header_annotation_invalid:`. At most 50, then how many more. Flags
 * quarantine nothing. Expects a document no deeper than a stack.
 */
export const toolFlags = (definition: UnknownRecord): readonly string[] =>
  hiddenTextFlags(definition, schemaFlags(definition.inputSchema))

/** Lists flags, `others` first, and the texts of a document that hide something. At most 50, then how many more. */
export function hiddenTextFlags(document: UnknownRecord, others: readonly string[] = []): readonly string[] {
  const flags: string[] = []
  let more = 0
  const note: NoteFlag = (flag) => {
    if (flags.length === MAX_FLAGS) more += 1
    else flags.push(truncateText(flag(), MAX_FLAG))
  }
  for (const flag of others) note(() => flag)
  noteHidden(document, [], note)
  return more === 0 ? flags : [...flags, `and ${more} more`]
}

/** Notes a flag. Its text is made only if there is room for it. */
type NoteFlag = (flag: () => string) => void

function schemaFlags(inputSchema: unknown): readonly string[] {
  const usable = usableSchema(inputSchema)
  const annotation = annotationFault(inputSchema)
  const flags = annotation === null ? [] : [`header_annotation_invalid:${annotation}`]
  if ('unchecked' in usable) {
    const doubtful = textOrJsonArguments(usable.schema).slice(0, MAX_FLAGS)
    if (doubtful.length > 0)
      flags.push(`text_or_json:${doubtful.map((name) => printJsonPath([name])).join(', ')}`)
    return [...flags, ...usable.unchecked.map((place) => `pattern_not_checked:${place}`)]
  }
  return [...flags, usable.code === 'schema_unusable' ? `${usable.code}:${usable.problem}` : usable.code]
}

function annotationFault(inputSchema: unknown): string | null {
  try {
    headerParams(inputSchema)
    return null
  } catch (error) {
    return error instanceof Error ? error.message : 'it cannot be read'
  }
}

function noteHidden(value: unknown, path: FlagPath, note: NoteFlag): void {
  if (typeof value === 'string') noteText(value, () => printJsonPath(path), note)
  else if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) noteHidden(item, [...path, index], note)
  } else if (isObject(value)) {
    for (const [name, inner] of Object.entries(value)) {
      noteText(name, () => `a name in ${printJsonPath(path) || 'the tool'}`, note)
      noteHidden(inner, [...path, name], note)
    }
  }
}

function noteText(text: string, place: () => string, note: NoteFlag): void {
  for (const [kind, points] of hiddenCharacters(text)) {
    note(() => `${kind}:${truncateText(place(), MAX_PLACE)} ${points.slice(0, 5).join(' ')}`)
  }
}
