import { number } from '../results.ts'
import type { Row } from '../row.ts'

/** The share of its core from which on the generator was the limit. */
const BUSY = 0.9

export const HEADINGS = ['server', 'c', 'req/s', 'p50 µs', 'p99 µs', 'CPU µs/req', 'core %', 'RSS MiB']

/** Returns a row's cells under {@link HEADINGS}. */
export function cells(row: Row): string[] {
  return [
    row.server,
    String(row.connections),
    perSecond(row),
    number(row.p50),
    number(row.p99),
    optional(row.cpuUs),
    corePercent(row),
    optional(row.rssMb),
  ]
}

export const corePercent = ({ cpuUs, perSecond: rate }: Row): string =>
  cpuUs === null ? '–' : number((cpuUs * rate) / 10_000)

/** Writes the throughput, with `\\*` where the generator was the limit. */
export const perSecond = (row: Row): string =>
  number(row.perSecond) +
  (row.generatorBusy > BUSY ? '\\*' : '') +
  (row.errors > 0 ? ` (${row.errors} errors)` : '')

export const optional = (value: number | null): string => (value === null ? '–' : number(value))

/**
 * Writes a Markdown table, or a sentence where there are no rows. The first column is text, the others are
 * figures.
 */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return 'not measured\n'
  const widths = headings.map((heading, i) =>
    Math.max(heading.length, ...rows.map((row) => (row[i] ?? '').length)),
  )
  const isText = (i: number): boolean => i === 0 || headings[i] === 'what'
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, i) => (isText(i) ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join(' | ')} |`
  const rule = `|${widths.map((width, i) => (isText(i) ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`
  return `${[line(headings), rule, ...rows.map(line)].join('\n')}\n`
}
