import { isUtf8 } from 'node:buffer'
import canonicalize from 'canonicalize'
import { type LeafPage, LeafRow, readLeaves } from '../canonical/leaf-row.ts'
import { leafDetailOf } from '../record/draft.ts'
import { nameMember, type ReadableNames, SHOWN_COLUMNS, type StoredRow, sealOf } from '../record/leaf.ts'
import { UnreadableSegment } from '../tree/rows.ts'
import { lineReader, type PageReader, readPages } from './threads.ts'
import type { DamagedRow } from './verify.ts'

export class NotAnExport extends Error {}

/**
 * Reads the rows of an NDJSON export from blocks of whole lines, page by page, by threads. The blocks belong to the
 * rows then. A line canonical beyond doubt becomes a {@link LeafRow}, many times faster than others, which are read by
 * {@link exportedRow}. The last is a {@link DamagedRow} if a line is no row. Throws {@link NotAnExport} if the first
 * is none.
 */
export async function* exportedPages<Page extends LeafPage = LeafPage>(
  blocks: AsyncIterable<Buffer>,
  { reader = lineReader as LineReader<Page>, onPage }: ExportedPagesOptions<Page> = {},
): AsyncGenerator<readonly (ExportedRow | DamagedRow)[]> {
  let count = 0
  for await (const page of readPages(reader, handedOver(blocks), ({ buffer }) => [buffer])) {
    if (!page) throw new Error('a thread that reads lines has ended')
    onPage?.(page)
    const rows: (ExportedRow | DamagedRow)[] = []
    for (const line of LeafRow.ofPage(page)) {
      count += 1
      rows.push(line instanceof LeafRow ? line : exportedRow(textOf(line), count))
      if ('damaged' in (rows.at(-1) ?? {})) {
        yield rows
        return
      }
    }
    yield rows
  }
  if (count === 0) throw new NotAnExport('there is nothing in it')
}

/** The rows of a block of whole lines of a segment. */
export function* intactRows(block: Buffer): Generator<StoredRow> {
  for (const line of LeafRow.ofPage(readLeaves(block, false))) {
    const row = line instanceof LeafRow ? line : exportedRow(textOf(line), 2)
    if ('damaged' in row) throw new UnreadableSegment('it has a line that is no row')
    yield row
  }
}

type LineReader<Page extends LeafPage> = PageReader<null, Uint8Array<ArrayBuffer>, Page>

interface ExportedPagesOptions<Page extends LeafPage> {
  readonly reader?: LineReader<Page>
  /** Sees each page before its rows. */
  readonly onPage?: (page: Page) => void
}

/** Bytes of which a thread can have the memory: Node keeps that of short ones. */
async function* handedOver(blocks: AsyncIterable<Buffer>): AsyncGenerator<Uint8Array<ArrayBuffer>> {
  for await (const block of blocks) {
    const { buffer, byteOffset, length } = block
    const isOwn = length > MAX_SHORT_BLOCK && buffer instanceof ArrayBuffer
    yield isOwn ? new Uint8Array(buffer, byteOffset, length) : new Uint8Array(block)
  }
}

const MAX_SHORT_BLOCK = 65_536

/** A row with the line that it was read from. */
export type ExportedRow = StoredRow & { readonly line: string }

const NO_ROW = 'which is not a row of an audit export'

const MEMBERS = [...SHOWN_COLUMNS, 'v']

const textOf = (line: Buffer): string | null => (isUtf8(line) ? line.toString() : null)

/**
 * Reads a row from its line, null for one that is not UTF-8. A leaf is its line without `row_hash`, `result` and
 * names: comparing it with the columns finds whatever was respelt. `count`: the number of the line. Throws {@link
 * NotAnExport} if the first is no row.
 */
export function exportedRow(line: string | null, count: number): ExportedRow | DamagedRow {
  const fields = line === null ? null : parseLine(line)
  if (count === 1 && !(fields && MEMBERS.every((name) => Object.hasOwn(fields, name))))
    throw new NotAnExport('the first line is not a row of an audit export')
  const row = fields && rowOf(line ?? '', fields)
  return row ?? { ...placeOf(fields), damaged: `should stand on line ${count}, ${NO_ROW}` }
}

function rowOf(line: string, fields: object): ExportedRow | null {
  if (!isRow(fields)) return null
  // The line's own text: `verify` proves that it is canonical, and that the leaf is made of it.
  const detail = leafDetailOf(line) || canonicalText(fields.detail)
  return detail === null ? null : { ...fields, detail, line, leaf: withoutSeal(line, fields) }
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
