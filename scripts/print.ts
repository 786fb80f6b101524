import { messageOf } from '../db/support/error-message.ts'
import { escapeHidden, escapeHiddenJson } from '../proxy/visible.ts'

// No other module of the command line writes to an output (test/scripts/print.test.ts): files, answers,
// errors and the ledger hold words of strangers, and a terminal obeys the text that it prints.

/** Prints lines on standard output, each as a terminal may have it. */
export const print = (...lines: readonly string[]): boolean => process.stdout.write(printableLines(lines))

/** Prints lines on standard error, each as a terminal may have it. */
export const printNotice = (...lines: readonly string[]): boolean =>
  process.stderr.write(printableLines(lines))

/** Prints a text of ours as it is, which may have several lines: a help, or one of {@link printableLines}. */
export const printVerbatim = (text: string): boolean => process.stdout.write(text)

/** Prints the message of an error on standard error: its first line after `as`, further ones set in. */
export function printError(as: string, error: unknown): boolean {
  const [first = '', ...more] = messageOf(error).split('\n')
  return printNotice(`${as}: ${first}`, ...more.map((line) => `  ${line}`))
}

/** Shows how far something is, in one line of a terminal that the next call replaces; null removes it. */
export function printProgress(text: string | null): void {
  if (process.stderr.isTTY) process.stderr.write(text === null ? '\r\u001b[K' : `\r${escapeHidden(text)}`)
}

/** Lets a process that serves go on if nobody takes its output: its reader is gone, or the disk is full. */
export function ignoreOutputErrors(): void {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {})
}

/**
 * Joins lines for a terminal, which obeys what it prints: every hidden or control character is written as
 * `\u{1b}`.
 */
export const printableLines = (lines: readonly string[]): string =>
  lines.map((line) => `${escapeHidden(line)}\n`).join('')

/** Writes JSON, indented, with hidden and control characters escaped: it reads back as the same value. */
export const jsonLines = (value: unknown): readonly string[] =>
  JSON.stringify(value, null, 2).split('\n').map(escapeHiddenJson)

export function alignColumns(rows: readonly (readonly string[])[]): readonly string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  return rows.map((row) =>
    row
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd(),
  )
}
