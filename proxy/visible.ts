/**
 * A kind of character that a reader does not see, or sees elsewhere than a model reads it
 * (docs/threats.md#threat-17).
 */
export type HiddenKind = 'bidi' | 'invisible' | 'tags'

const TAGS = /[\u{e0000}-\u{e007f}]/u
const BIDI = /\p{Bidi_Control}/u
const HIDDEN = /[\p{Default_Ignorable_Code_Point}\p{Cf}\p{Cc}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\u{2800}]/u
const EVERY_HIDDEN = new RegExp(HIDDEN, 'gu')
const LAYOUT = new Set(['\n', '\r', '\t'])
// An emoji's own presentation selector, and the joiner between two: every second README has one.
const EMOJI_PARTS =
  /(?<=\p{Extended_Pictographic}|[0-9#*](?=\ufe0f\u20e3))\ufe0f|(?<=\p{Extended_Pictographic}\ufe0f?)\u200d(?=\p{Extended_Pictographic})/gu

/**
 * Lists the hidden code points of a text, each once, in order, line breaks and tabs aside: `U+200B` by kind.
 */
export function hiddenCharacters(text: string): ReadonlyMap<HiddenKind, readonly string[]> {
  const hidden = new Map<HiddenKind, string[]>()
  if (!HIDDEN.test(text)) return hidden
  for (const character of new Set(text.replace(EMOJI_PARTS, '').match(EVERY_HIDDEN))) {
    if (LAYOUT.has(character)) continue
    const kind = kindOf(character)
    hidden.set(kind, [...(hidden.get(kind) ?? []), `U+${hexOf(character).toUpperCase().padStart(4, '0')}`])
  }
  return hidden
}

/** Writes every character that hides as `\u{200b}`. Visible ones stay. */
export function escapeHidden(text: string): string {
  return text.replace(EVERY_HIDDEN, (character) => `\\u{${hexOf(character)}}`)
}

/** Writes the same, but for line feeds: for a text whose lines are ours. */
export const escapeHiddenLines = (text: string): string => text.split('\n').map(escapeHidden).join('\n')

/**
 * Prints the place of a value in a JSON document: `inputSchema.properties["a b"].enum[0]`. Unlike `printPath`
 * of operators' files it quotes and escapes: the names are untrusted.
 */
export function printJsonPath(path: readonly (string | number)[]): string {
  const place = path.map((step) => {
    if (typeof step === 'number') return `[${step}]`
    return /^[\w$-]+$/.test(step) ? `.${step}` : `[${escapeHidden(JSON.stringify(step))}]`
  })
  return place.join('').replace(/^\./, '')
}

/** Cuts a text to so many characters, with a mark if some are missing. */
export const truncateText = (text: string, characters: number): string =>
  text.length <= characters ? text : `${text.slice(0, characters)}…`

function kindOf(character: string): HiddenKind {
  if (TAGS.test(character)) return 'tags'
  return BIDI.test(character) ? 'bidi' : 'invisible'
}

const hexOf = (character: string): string => (character.codePointAt(0) ?? 0).toString(16)

/**
 * Returns JSON text with everything that hides or controls written as JSON escapes it (`\u200b`): it reads
 * back as the same value, and a terminal that prints it has nothing to obey. Line breaks between values are
 * escaped too: give it one line.
 */
export const escapeHiddenJson = (json: string): string =>
  // Most characters of any text need no look.
  json.replace(/[^\x20-\x7e]+/g, (run) => run.replace(EVERY_HIDDEN, escapeUnits))

/** Returns the `\uXXXX` of the code units of a character. */
function escapeUnits(character: string): string {
  const units = Array.from({ length: character.length }, (_, at) => character.charCodeAt(at))
  return units.map((unit) => `\\u${unit.toString(16).padStart(4, '0')}`).join('')
}
