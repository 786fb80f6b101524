import { escapeHidden, hiddenCharacters } from '../proxy/visible.ts'

/**
 * Returns the word of a POSIX shell that stands for exactly this text. A line feed or another control
 * character makes it a word of several lines, of which a comment would hold only the first: see {@link
 * assertOneLine}.
 */
export const shellWord = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : shellQuoted(text))

/** Returns the same word, quoted whatever it holds. */
export const shellQuoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/**
 * Throws one sentence if a text that a shell, and a person, is to read has a line feed, or a character that
 * hides.
 */
export function assertOneLine(what: string, text: string): void {
  if (/[\n\r]/.test(text) || hiddenCharacters(text).size > 0)
    throw new Error(`${what} has a line feed, or a character that hides or controls: ${escapeHidden(text)}`)
}
