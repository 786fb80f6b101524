import { number } from '../results.ts'

/** The value of a cell: what a record of the results holds at its leaves. */
type Cell = string | number | boolean | null | undefined

/**
 * Writes a Markdown table, or a sentence if there are no rows. A column of numbers stands to the right. The JSON of a
 * run (`--json`) has the same figures, unrounded.
 */
export function table(headings: readonly string[], rows: readonly (readonly string[])[]): string {
  if (rows.length === 0) return 'not measured\n'
  const widths = headings.map((heading, i) =>
    Math.max(heading.length, ...rows.map((row) => (row[i] ?? '').length)),
  )
  const isText = headings.map((_, i) => rows.some((row) => !/^(?:[-–]|≥|≤|)[\d.,– ]*$/.test(row[i] ?? '')))
  const line = (row: readonly string[]): string =>
    `| ${row.map((cell, i) => (isText[i] ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join(' | ')} |`
  const rule = `|${widths.map((width, i) => (isText[i] ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`
  return `${[line(headings), rule, ...rows.map(line)].join('\n')}\n`
}

/** Writes records as a table: a column for each member that one of them has, nested members by both names. */
export function tableOfRecords(records: readonly object[]): string {
  const flat = records.map((record) => new Map(cellsOf(record)))
  const valuesOf = (name: string) => flat.map((cells) => cells.get(name) ?? null)
  const isNumber = (name: string) =>
    valuesOf(name).every((value) => value === null || typeof value === 'number')
  const headings = [...new Set(flat.flatMap((cells) => [...cells.keys()]))]
    .filter((name) => valuesOf(name).some((value) => value !== null))
    // What a row is about comes before its figures.
    .toSorted((a, b) => Number(isNumber(a)) - Number(isNumber(b)))
  return table(
    headings,
    flat.map((cells) => headings.map((name) => written(cells.get(name)))),
  )
}

function* cellsOf(record: object, prefix = ''): Generator<[string, Cell]> {
  for (const [name, value] of Object.entries(record)) {
    if (typeof value === 'object' && value !== null) yield* cellsOf(value, `${prefix}${name} `)
    else yield [`${prefix}${name}`, value as Cell]
  }
}

function written(cell: Cell): string {
  if (cell === null || cell === undefined) return '–'
  if (typeof cell !== 'number') return String(cell)
  return number(cell, Number.isInteger(cell) || Math.abs(cell) >= 100 ? 0 : 2)
}
