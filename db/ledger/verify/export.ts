import { isUtf8 } from 'node:buffer'
import canonicalize from 'canonicalize'
import { LeafRow } from '../canonical/leaf-row.ts'
import { leafDetailOf } from '../record/draft.ts'
import { nameMember, type ReadableNames, SHOWN_COLUMNS, type StoredRow, sealOf } from '../record/leaf.ts'
import type { DamagedRow } from './verify.ts'

export class NotAnExport extends Error {}

/**
 * Reads the rows of an NDJSON export from its lines, null for one that is not UTF-8. A leaf is its line
 * without `row_hash`, `result` and names: comparing it with the columns finds whatever was respelt. A line
 * that is no row is a {@link DamagedRow}, and the last. Throws {@link NotAnExport} if the first is no row.
 */
export async function* exportedRows(
  lines: AsyncIterable<string | null>,
): AsyncGenerator<StoredRow | DamagedRow> {
  let count = 0
  for await (const line of lines) {
    count += 1
    const row = rowOn(line, count)
    yield row
    if ('damaged' in row) return
  }
  if (count === 0) throw new NotAnExport('there is nothing in it')
}

/**
 * The same from blocks of whole lines, which belong to the rows then. A line canonical beyond doubt becomes a
 * {@link LeafRow}, many times faster; others follow {@link exportedRows}.
 */
export async function* exportedRowsInBlocks(
  blocks: AsyncIterable<Buffer>,
): AsyncGenerator<StoredRow | DamagedRow> {
  let count = 0
  for await (const block of blocks) {
    const isText = isUtf8(block)
    for (let from = 0; from < block.length; ) {
      const lf = block.indexOf(LF, from)
      const to = lf < 0 ? block.length : lf
      count += 1
      const row =
        (isText && LeafRow.ofLine(block, from, to)) || rowOn(textOf(block.subarray(from, to)), count)
      yield row
      if ('damaged' in row) return
      from = to + 1
    }
  }
  if (count === 0) throw new NotAnExport('there is nothing in it')
}

const LF = 0x0a

const NO_ROW = 'which is not a row of an audit export'

const MEMBERS = [...SHOWN_COLUMNS, 'v']

const textOf = (line: Buffer): string | null => (isUtf8(line) ? line.toString() : null)

function rowOn(line: string | null, count: number): StoredRow | DamagedRow {
  const fields = line === null ? null : parseLine(line)
  if (count === 1 && !(fields && MEMBERS.every((name) => Object.hasOwn(fields, name))))
    throw new NotAnExport('the first line is not a row of an audit export')
  const row = fields && rowOf(line ?? '', fields)
  return row ?? { ...placeOf(fields), damaged: `should stand on line ${count}, ${NO_ROW}` }
}

function rowOf(line: string, fields: object): StoredRow | null {
  if (!isRow(fields)) return null
  // The line's own text: `verify` proves that it is canonical, and that the leaf is made of it.
  const detail = leafDetailOf(line) || canonicalText(fields.detail)
  return detail === null ? null : { ...fields, detail, leaf: withoutSeal(line, fields) }
}

const placeOf = (fields: object | null): Pick<DamagedRow, 'stream' | 'seq'> => ({
  ...(fields && 'stream' in fields && { stream: fields.stream }),
  ...(fields && 'seq' in fields && { seq: fields.seq }),
})

type ExportedColumns = Omit<StoredRow, 'detail' | 'leaf'> & {
  readonly [name in keyof ReadableNames | 'detail']: unknown
}

// The columns that are looked at before the row is compared with its leaf. That comparison proves the others.
function isRow(fields: object): fields is ExportedColumns {
  if (!('stream' in fields && 'action' in fields && 'row_hash' in fields && 'detail' in fields)) return false
  return [fields.stream, fields.action, fields.row_hash].every((text) => typeof text === 'string')
}

// From the end: only texts follow each of them, and no text has a bare quotation mark.
function withoutSeal(line: string, row: ExportedColumns): string {
  const unnamed = removeLastMember(line, nameOf('subject_name', row), ',"tool":')
  const unsealed = removeLastMember(unnamed, sealOf(row), ',"seq":')
  return removeLastMember(unsealed, nameOf('principal_name', row), ',"principal_type":')
}

// A value that is no text stays, and is found.
function nameOf(member: keyof ReadableNames, { [member]: name }: ExportedColumns): string {
  return typeof name === 'string' && name.isWellFormed() ? nameMember(member, name) : ''
}

function removeLastMember(line: string, text: string, next: string): string {
  if (text === '') return line
  const at = line.lastIndexOf(text + next)
  return at < 0 ? line : line.slice(0, at) + line.slice(at + text.length)
}

function parseLine(line: string): object | null {
  try {
    const value: unknown = JSON.parse(line)
    return typeof value === 'object' ? value : null
  } catch (error) {
    if (error instanceof SyntaxError) return null
    throw error
  }
}

function canonicalText(detail: unknown): string | null {
  try {
    return canonicalize(detail) ?? null
  } catch (error) {
    // Half a surrogate pair, which has no canonical form.
    if (error instanceof Error) return null
    throw error
  }
}
