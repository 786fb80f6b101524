import { visible } from '../../visible.ts'

/**
 * JSON text with everything that hides or controls written as JSON escapes it (`\u200b`): it reads back as the same value,
 * and a terminal that prints it has nothing to obey. Line breaks between values are escaped too: give it one line.
 */
export const visibleJson = (json: string): string =>
  // Most of any text is not even asked about.
  json.replace(/[^\x20-\x7e]/gu, escaped)

/** A character, or the `\uXXXX` of its code units where it hides. */
function escaped(character: string): string {
  if (visible(character) === character) return character
  const units = Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')
}
