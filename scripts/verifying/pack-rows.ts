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

/** Writes a line of CSV as `csvLine` does. Returns its end; its start if a text of it may have to be defused. */
function csvEnd(bytes: Buffer, found: PlacedMembers, csv: Uint8Array, start: number): number {
  let to = start
  for (const column of SHOWN_COLUMNS) {
    if (to > start) csv[to++] = COMMA
    let [from, end] = [found.from(column), found.to(column)]
    if (bytes[from] === QUOTE) [from, end] = [from + 1, end - 1]
    else if (bytes[from] === NULL_START) continue
    if (from === end) continue
    if (!isHarmlessStart(bytes[from] ?? 0)) return start
    let isQuoted = false
    for (let at = from; at < end; at += 1) {
      const byte = bytes[at] ?? 0
      if (byte === QUOTE || byte === COMMA) isQuoted = true
      else if (byte < SPACE || byte > TILDE || byte === SEMICOLON) return start
    }
    if (isQuoted) csv[to++] = QUOTE
    for (let at = from; at < end; at += 1) {
      const byte = bytes[at] ?? 0
      if (byte === QUOTE) csv[to++] = QUOTE
      csv[to++] = byte
    }
    if (isQuoted) csv[to++] = QUOTE
  }
  csv[to++] = CR
  csv[to++] = LF
  return to
}

const [LF, CR, SPACE, QUOTE, COMMA, SEMICOLON, TILDE] = [0x0a, 0x0d, 0x20, 0x22, 0x2c, 0x3b, 0x7e]
const [NULL_START, OPEN_BRACE] = [0x6e, 0x7b]

const isHarmlessStart = (byte: number): boolean =>
  byte === OPEN_BRACE ||
  (byte >= 0x30 && byte <= 0x39) ||
  (byte >= 0x41 && byte <= 0x5a) ||
  (byte >= 0x61 && byte <= 0x7a)
