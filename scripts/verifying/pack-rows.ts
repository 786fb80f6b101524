import { PLACE_OF } from '../../db/ledger/canonical/leaf-reader.ts'
import { type LeafPage, PAGE_WIDTH, PlacedMembers, readLeaves } from '../../db/ledger/canonical/leaf-row.ts'
import { SHOWN_COLUMNS } from '../../db/ledger/record/leaf.ts'
import { type PageReader, serveAs } from '../../db/ledger/verify/threads.ts'

/** Rows with their lines of CSV. */
export interface TabledPage extends LeafPage {
  readonly csv: Uint8Array
  /** The end of each line; that of the line before where another must write it. */
  readonly ends: Int32Array
}

/** Reads blocks of rows of a pack. */
export const packRowReader: PageReader<null, Uint8Array<ArrayBuffer>, TabledPage> = {
  module: import.meta.url,
  role: 'rows of a pack',
  read: readTabled,
  data: null,
}
serveAs(packRowReader.role, () => readTabled)

function readTabled(block: Uint8Array<ArrayBuffer>): TabledPage {
  const bytes = Buffer.from(block.buffer, block.byteOffset, block.byteLength)
  const page = readLeaves(bytes, false)
  const count = page.places.length / PAGE_WIDTH
  const csv = roomFor(2 * bytes.length + 64 * count)
  const ends = new Int32Array(count)
  let end = 0
  for (let row = 0; row < count; row += 1) {
    const at = row * PAGE_WIDTH
    if (page.places[at + 3] !== 0) end = csvEnd(bytes, new PlacedMembers(bytes, page.places, at), csv, end)
    ends[row] = end
  }
  return { ...page, csv: csv.slice(0, end), ends }
}

// Filled again for each page: its making took as long as its filling.
let room = new Uint8Array(0)

/** No byte becomes more than two; each column has a comma, and may have quotation marks around it. */
function roomFor(bytes: number): Uint8Array {
  if (room.length < bytes) room = new Uint8Array(bytes)
  return room
}

const CELLS: readonly number[] = SHOWN_COLUMNS.map((column) => PLACE_OF[column])

/** Writes a line of CSV as `csvLine` does. Returns its end; its start if a text of it may have to be defused. */
function csvEnd(bytes: Buffer, found: PlacedMembers, csv: Uint8Array, start: number): number {
  let to = start
  for (const place of CELLS) {
    if (to > start) csv[to++] = COMMA
    let [from, end] = [found.from(place), found.to(place)]
    if (bytes[from] === QUOTE) [from, end] = [from + 1, end - 1]
    else if (bytes[from] === NULL_START) continue
    if (from === end) continue
    if (!isHarmlessStart(bytes[from] ?? 0)) return start
    // An object has quotation marks, unless it is empty.
    const isQuoted = bytes[from] === OPEN_BRACE && end - from > 2
    to = cellEnd(bytes, from, end, csv, to, isQuoted)
    if (to < 0) return start
  }
  csv[to++] = CR
  csv[to++] = LF
  return to
}

/** Writes a cell. Returns its end; -1 if it may have to be defused. */
function cellEnd(
  bytes: Buffer,
  from: number,
  end: number,
  csv: Uint8Array,
  start: number,
  isQuoted: boolean,
): number {
  let to = start
  if (isQuoted) csv[to++] = QUOTE
  for (let at = from; at < end; at += 1) {
    const byte = bytes[at] ?? 0
    const kind = KINDS[byte]
    if (kind === ODD) return -1
    if (kind !== PLAIN) {
      if (!isQuoted) return cellEnd(bytes, from, end, csv, start, true)
      if (byte === QUOTE) csv[to++] = QUOTE
    }
    csv[to++] = byte
  }
  if (isQuoted) csv[to++] = QUOTE
  return to
}

const [LF, CR, SPACE, QUOTE, COMMA, SEMICOLON, TILDE] = [0x0a, 0x0d, 0x20, 0x22, 0x2c, 0x3b, 0x7e]
const [NULL_START, OPEN_BRACE] = [0x6e, 0x7b]

/** Bytes that stand for themselves, those that a cell is quoted for, and those that are left to another. */
const [PLAIN, QUOTED, ODD] = [0, 1, 2]
const KINDS = Uint8Array.from({ length: 256 }, (_, byte) => {
  if (byte < SPACE || byte > TILDE || byte === SEMICOLON) return ODD
  return byte === QUOTE || byte === COMMA ? QUOTED : PLAIN
})

const isHarmlessStart = (byte: number): boolean =>
  byte === OPEN_BRACE ||
  (byte >= 0x30 && byte <= 0x39) ||
  (byte >= 0x41 && byte <= 0x5a) ||
  (byte >= 0x61 && byte <= 0x7a)
