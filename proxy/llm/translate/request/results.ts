import type { TranslationNotes } from '../losses.ts'
import type { ContentPart, MediaPart, ToolResult } from '../model/request.ts'

/** Puts results in the order of their calls. */
export function resultsInOrder(
  results: readonly ToolResult[],
  asked: readonly string[],
): readonly ToolResult[] {
  const places = new Map(asked.map((id, place) => [id, place]))
  const placeOf = ({ id }: ToolResult): number => places.get(id) ?? asked.length
  return results.toSorted((one, other) => placeOf(one) - placeOf(other))
}

/** Returns the texts of a result as one, for a wire that has no mark of failure and no documents there. */
export function resultText({ parts, isError }: ToolResult, notes: TranslationNotes): string {
  const texts = parts.flatMap((part) => textOf(part, notes))
  return (isError ? ['[error]', ...texts] : texts).join('\n')
}

function textOf(part: ContentPart, notes: TranslationNotes): readonly string[] {
  if (part.kind === 'text') return [part.text]
  return part.text === undefined ? [] : [textOfDocument(part, notes)]
}

/** Returns the text of a document behind a line with its title. */
export function textOfDocument({ text = '', title }: MediaPart, notes: TranslationNotes): string {
  notes.carry('document_text')
  return title === null ? text : `${title}\n${text}`
}
