import { isUtf8 } from 'node:buffer'
import { createHash } from 'node:crypto'
import type { DigestedState } from '../../db/ledger/authority/ledger-state.ts'
import type { CsvForm } from '../../db/ledger/read/evidence-tables.ts'
import { HASH_BYTES } from '../../db/ledger/tree/hashes.ts'
import { MalformedNote, parseVerifierKey, type VerifierKey } from '../../db/ledger/tree/note.ts'
import { edgeOf, rootOf, TILE_WIDTH, type TilePlace } from '../../db/ledger/tree/tiles.ts'
import { parseSignedCheckpoint, type SignedCheckpoint } from '../../db/ledger/tree/trusted.ts'
import { readState } from '../../db/ledger/verify/recompute.ts'
import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import { ambiguityOf } from './readings.ts'
import { openZip, type ZipArchive } from './zip.ts'

/** A pack of evidence (docs/ledger.md#evidence). Its files are strangers' bytes. */
export interface EvidencePack {
  readonly zip: ZipArchive
  /** The index of the first row in the log, and how many rows it says there are. */
  readonly first: number
  readonly rows: number
  readonly origin: string
  readonly since: string | null
  readonly until: string | null
  /** The state before the first row; undefined if the pack brings none, null if it is written otherwise. */
  readonly start: () => Promise<DigestedState | null | undefined>
  /** The same of the state after the last row. */
  readonly end: () => Promise<DigestedState | null | undefined>
  /** The form of its tables. */
  readonly csv: CsvForm
  /** The keys and the checkpoints, smallest first, that it brings. Throw `MalformedNote`. */
  readonly keys: () => Promise<readonly VerifierKey[]>
  readonly checkpoints: () => Promise<readonly SignedCheckpoint[]>
  /** At least `width` hashes of a tile. Throws `MalformedNote`. */
  readonly tile: (place: TilePlace, width: number) => Promise<Buffer>
}

const FORMAT = 'sallyport-evidence/1'
/** The most that the files which are read whole may have, each and all together. Bytes. */
const TEXT_LIMIT = 64 * 1024 * 1024
/** The most values that a JSON file may have, by its commas and brackets. */
const MAX_VALUES = 2_000_000
const NOTE_LIMIT = 1024 * 1024
/** The tiles that are remembered: those of a row, level by level, and of those around it. */
const MAX_TILES = 256

/** Opens a pack. Throws one sentence if it is none. */
export async function openPack(path: string): Promise<EvidencePack> {
  const zip = await openZip(path)
  const whole = zip.names
    .filter((name) => !isReadInPieces(name))
    .reduce((sum, name) => sum + zip.length(name), 0)
  if (whole > TEXT_LIMIT)
    throw new Error(`its files other than rows, tables and tiles are ${whole} bytes long`)
  const said = parseObject(await zip.bytes('inventory.json', TEXT_LIMIT))
  if (!said) throw new Error('this is no pack of evidence: inventory.json is no object')
  const { format, first_index: first, rows, origin, since, until, csv = 1 } = said
  if (
    format !== FORMAT ||
    !isCount(first) ||
    !isCount(rows) ||
    typeof origin !== 'string' ||
    !(csv === 1 || csv === 2)
  )
    throw new Error('this is a pack of another form')
  if (rows === 0) throw new Error('there is no row in it')
  return {
    zip,
    first,
    rows,
    origin,
    since: typeof since === 'string' ? since : null,
    until: typeof until === 'string' ? until : null,
    csv,
    start: () => stateIn(zip, 'state-start.json'),
    end: () => stateIn(zip, 'state-end.json'),
    keys: async () => (await textOf(zip, 'key.txt')).split('\n').filter(Boolean).map(parseVerifierKey),
    checkpoints: async () => {
      const names = zip.names.filter((name) => /^checkpoints\/[0-9]+\.txt$/.test(name))
      const texts = await Promise.all(names.map((name) => textOf(zip, name)))
      const stamps = await stampsIn(zip)
      const found = texts
        .map(parseSignedCheckpoint)
        .map((signed) => ({ ...signed, stamps: stamps.get(signed.size) ?? [] }))
      const lone = [...stamps.keys()].find((size) => !found.some((signed) => signed.size === size))
      if (lone !== undefined)
        throw new MalformedNote(`there is a time stamp of ${lone} rows, but no such checkpoint`)
      return found.toSorted((one, other) => one.size - other.size)
    },
    tile: tilesIn(zip),
  }
}

/** Tells whether a file is never held whole, or is a tile, of which only a few are. */
const isReadInPieces = (name: string): boolean =>
  name === 'rows.ndjson' || name.startsWith('tiles/') || TABLES.includes(name)

const TABLES = [
  ...['rows.csv', 'refusals.csv', 'grants.ndjson', 'sign-ins.ndjson', 'tools.json'],
  ...['sets-end.json', 'README.md', 'verify.py', 'verify.mjs'],
]

async function stateIn(zip: ZipArchive, name: string): Promise<DigestedState | null | undefined> {
  if (!zip.names.includes(name)) return undefined
  const bytes = await zip.bytes(name, TEXT_LIMIT)
  return parseObject(bytes) && readState(bytes.toString())
}

async function textOf(zip: ZipArchive, name: string): Promise<string> {
  if (!zip.names.includes(name)) throw new MalformedNote(`${name} is not in the pack`)
  const bytes = await zip.bytes(name, NOTE_LIMIT)
  if (!isUtf8(bytes)) throw new MalformedNote(`${name} is no text`)
  return bytes.toString()
}

/**
 * The time stamps of a pack, by the size of their checkpoint. One may have several, by several authorities.
 */
async function stampsIn(zip: ZipArchive): Promise<ReadonlyMap<number, readonly Buffer[]>> {
  const found = new Map<number, Buffer[]>()
  for (const name of zip.names.toSorted()) {
    const [, size] = /^anchors\/([0-9]+)(?:-[0-9]+)?\.tsr$/.exec(name) ?? []
    if (size !== undefined)
      found.set(Number(size), [...(found.get(Number(size)) ?? []), await zip.bytes(name, NOTE_LIMIT)])
  }
  return found
}

/**
 * The object that a file is; null if it is none, has more than 2,000,000 values, or can be read in two ways.
 */
export function parseObject(bytes: Buffer): UnknownRecord | null {
  if (!isUtf8(bytes) || countValues(bytes) > MAX_VALUES) return null
  const text = bytes.toString()
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) && !ambiguityOf(text) ? value : null
  } catch {
    return null
  }
}

/** Counts the commas and brackets of a text, and so no fewer than its values. */
function countValues(bytes: Buffer): number {
  let count = 0
  for (const byte of bytes) if (byte === COMMA || byte === OPEN_BRACKET || byte === OPEN_BRACE) count += 1
  return count
}

const [COMMA, OPEN_BRACKET, OPEN_BRACE] = [0x2c, 0x5b, 0x7b]

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

const TILE = /^tiles\/([0-9]{1,2})\/((?:x[0-9]{3}\/)*[0-9]{3})(?:\.p\/([0-9]{1,3}))?$/

function tilesIn(zip: ZipArchive): EvidencePack['tile'] {
  const stored = new Map<string, { readonly name: string; readonly width: number }>()
  for (const name of zip.names) {
    const [, level, n = '', width = TILE_WIDTH] = TILE.exec(name) ?? []
    if (level !== undefined)
      stored.set(`${Number(level)}/${Number(n.replaceAll(/[x/]/g, ''))}`, { name, width: Number(width) })
  }
  const kept = new Map<string, Promise<Buffer>>()
  async function read({ name, width }: { readonly name: string; readonly width: number }): Promise<Buffer> {
    const hashes = await zip.bytes(name, TILE_WIDTH * HASH_BYTES)
    if (hashes.length !== width * HASH_BYTES)
      throw new MalformedNote(`${name} has another width than it says`)
    return hashes
  }
  return async ({ level, n }, width) => {
    const place = `${level}/${n}`
    const found = stored.get(place)
    if (!found || found.width < width) throw new MalformedNote(`tile ${place} is not in the pack`)
    const hashes = kept.get(place) ?? read(found)
    if (kept.size >= MAX_TILES) kept.clear()
    kept.set(place, hashes)
    return hashes
  }
}

/** The root of so many leaves, by the edge of the tree. Throws `MalformedNote` if a tile of it is missing. */
export async function rootAt({ tile }: Pick<EvidencePack, 'tile'>, size: number): Promise<Buffer> {
  const edge = edgeOf(size).map(async ({ width, ...place }) =>
    width === 0 ? Buffer.alloc(0) : (await tile(place, width)).subarray(0, width * HASH_BYTES),
  )
  return rootOf(await Promise.all(edge))
}

/**
 * Compares a zip with its SHA256SUMS. Returns the fault as a sentence; null if there is none. `see`: is shown the
 * rows on the way.
 */
export async function checksumFault(zip: ZipArchive, see: (chunk: Buffer) => void): Promise<string | null> {
  if (!zip.names.includes('SHA256SUMS')) return 'SHA256SUMS is not in the pack'
  const listed = await digestsIn(zip)
  const [sums, names] = [new Map(listed), new Set(zip.names)]
  if (sums.size < listed.length) return 'a file is in SHA256SUMS twice'
  const odd = [...sums.keys()].find((name) => !names.has(name))
  const unlisted = zip.names.find((name) => name !== 'SHA256SUMS' && !sums.has(name))
  if (odd !== undefined || unlisted !== undefined)
    return `${odd ?? unlisted} is not in SHA256SUMS, or only there`
  for (const [name, digest] of sums) {
    const running = createHash('sha256')
    for await (const chunk of await zip.stream(name)) {
      running.update(chunk)
      if (name === 'rows.ndjson') see(chunk)
    }
    if (running.digest('hex') !== digest) return `${name} is not what SHA256SUMS says`
  }
  return null
}

/** Reads SHA256SUMS: each file's name and digest. Other lines are the name of no file. */
export async function digestsIn(
  zip: ZipArchive,
): Promise<readonly (readonly [name: string, digest: string])[]> {
  // Twice as much as a line for each file takes.
  const limit = zip.names.reduce((sum, name) => sum + 2 * (DIGEST_LENGTH + name.length), MIN_SUMS_LIMIT)
  const lines = (await zip.bytes('SHA256SUMS', limit)).toString().split('\n')
  return lines.filter(Boolean).map((line) => {
    const [, digest = '', name = line] = /^([0-9a-f]{64}) {2}(.+)$/.exec(line) ?? []
    return [name, digest]
  })
}

/** The characters of a line of SHA256SUMS besides the name. */
const DIGEST_LENGTH = 67
const MIN_SUMS_LIMIT = 65_536
