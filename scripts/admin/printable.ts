import { escapeHidden, escapeHiddenJson } from '../../proxy/visible.ts'

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
