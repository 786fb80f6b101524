import { escapeHidden, hiddenCharacters } from '../proxy/visible.ts'

/**
 * Quotes a text for a POSIX shell. A line feed makes it a word of several lines: see {@link assertOneLine}.
 */
export const shellWord = (text: string): string => (/^[\w@%+=:,./-]+$/.test(text) ? text : shellQuoted(text))

export const shellQuoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/** Throws one sentence if a text for a shell and a person has a line feed, or a character that hides. */
export function assertOneLine(what: string, text: string): void {
  if (/[\n\r]/.test(text) || hiddenCharacters(text).size > 0)
    throw new Error(`${what} has a line feed, or a character that hides or controls: ${escapeHidden(text)}`)
}
