import { isUtf8 } from 'node:buffer'
import { hash } from 'node:crypto'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import { type LeafVersion, leafVersion, type StoredRow } from '../record/leaf.ts'
import { isInstant } from './instant.ts'
import { DETAIL_NOTES, labelLength, PLACE_OF, PLACES_PER_LEAF, readLeaf } from './leaf-reader.ts'
import { TextCache } from './text-cache.ts'

/** The members that an export adds to a leaf, in their order. */
const ADDED = (['principal_name', 'result', 'row_hash', 'subject_name'] as const).map((member) => ({
  place: PLACE_OF[member],
  label: labelLength(member),
}))

/** The columns that an engine stores alongside a leaf. */
type ColumnsBesideLeaf = Pick<
  StoredRow,
  'stream' | 'seq' | 'recorded_at' | 'request_id' | 'principal_id' | 'action' | 'status' | 'row_hash'
>

/** Lines that were read together, as a thread hands them over. */
export interface LeafPage {
  readonly bytes: Uint8Array
  /** The start and end of each line, then the places of its members; these are 0 if it was not read. */
  readonly places: Int32Array
  /** The hash of each leaf in the tree. */
  readonly hashes: Uint8Array
}

const HASH_BYTES = 32
/** The numbers of a line in a page. */
export const PAGE_WIDTH = 2 + PLACES_PER_LEAF
/** No row has a shorter line. Bytes. */
const MIN_LINE = 300
const [LF, QUOTE, ZERO, MINUS] = [0x0a, 0x22, 0x30, 0x2d]

/** Longer leaves are read in another way: no honest one is near. */
const leafBytes = Buffer.alloc(1 + 256 * 1024)

/**
 * Reads lines of an export, or leaves with their `row_hash` as a text of JSON before them (`isSealed`). Those
 * that are canonical beyond doubt and have the right `row_hash` become rows ({@link LeafRow}). Ends with a line of
 * an export that is too short for a row, and after `most` lines.
 */
export function readLeaves(
  block: Buffer,
  isSealed: boolean,
  { most = Math.ceil(block.length / MIN_LINE) + 1, isHashed = true }: ReadLeavesOptions = {},
): LeafPage {
  const isText = isUtf8(block)
  const places = new Int32Array(most * PAGE_WIDTH)
  const hashes = Buffer.alloc(isHashed ? most * HASH_BYTES : 0)
  let count = 0
  for (let from = 0; from < block.length && count < most; count += 1) {
    const lf = block.indexOf(LF, from)
    const to = lf < 0 ? block.length : lf
    const at = count * PAGE_WIDTH
    places[at] = from
    places[at + 1] = to
    const length = isText ? soundLength(block, places, at, isSealed) : 0
    if (length === 0) places.fill(0, at + 2, at + PAGE_WIDTH)
    else if (isHashed) hashes.write(treeHash(length), count * HASH_BYTES, 'latin1')
    from = !isSealed && to - from < MIN_LINE ? block.length : to + 1
  }
  return { bytes: block, places: places.subarray(0, count * PAGE_WIDTH), hashes }
}

interface ReadLeavesOptions {
  readonly most?: number
  /** False: the hashes of the tree are made when they are asked for. */
  readonly isHashed?: boolean
}

/** The hash in the tree of what is in `leafBytes`. A text: Node takes twice as long to give bytes. */
const treeHash = (length: number): string => hash('sha256', leafBytes.subarray(0, length), 'binary')

/** Returns the length of the leaf with the byte before it, in `leafBytes`; 0 if there is any doubt about a line. */
function soundLength(bytes: Buffer, places: Int32Array, at: number, isSealed: boolean): number {
  const [from = 0, to = 0] = [places[at], places[at + 1]]
  const start = isSealed ? from + SEAL_LENGTH : from
  if (readLeaf(bytes, start, !isSealed, places, at + 2) !== to) return 0
  if (isSealed) {
    if (bytes[from] !== QUOTE || bytes[start - 1] !== QUOTE) return 0
    places[at + 2 + PLACE_OF.row_hash] = from
    places[at + 3 + PLACE_OF.row_hash] = start
  }
  const found = new PlacedMembers(bytes, places, at)
  const version = found.integer(PLACE_OF.v)
  if (version !== 1 && version !== 2) return 0
  if (
    found.integer(PLACE_OF.seq) < 0 ||
    !isInstant(found.text(PLACE_OF.recorded_at)) ||
    !found.has(PLACE_OF.row_hash)
  )
    return 0
  if (!isSealed) {
    const result = found.has(PLACE_OF.result) ? found.text(PLACE_OF.result) : null
    if (result !== (found.text(PLACE_OF.action).startsWith('mcp_') ? found.text(PLACE_OF.status) : null))
      return 0
  }
  const length = found.copyLeaf(start, to)
  return length > 1 && hash('sha256', leafBytes.subarray(1, length)) === found.text(PLACE_OF.row_hash)
    ? length
    : 0
}

/** A digest of 64 characters as a text of JSON. */
const SEAL_LENGTH = 66

const frequent = new TextCache()

/** The members of a line that was read. */
export class PlacedMembers {
  readonly #bytes: Buffer
  readonly #places: Int32Array
  /** The first of its numbers. */
  readonly #at: number

  constructor(bytes: Buffer, places: Int32Array, at: number) {
    this.#bytes = bytes
    this.#places = places
    this.#at = at
  }

  from(place: number): number {
    return this.#places[this.#at + 2 + place] ?? 0
  }

  to(place: number): number {
    return this.#places[this.#at + 3 + place] ?? 0
  }

  /** The line of an export that it was read from. */
  get line(): string {
    return this.#bytes.toString('utf8', this.#places[this.#at], this.#places[this.#at + 1])
  }

  get leaf(): string {
    return leafBytes.toString('utf8', 1, this.copyWhole())
  }

  /** Copies the leaf as `copyLeaf` does. */
  copyWhole(): number {
    return this.copyLeaf(this.from(PLACE_OF.action) - labelLength('action'), this.#places[this.#at + 1] ?? 0)
  }

  /** Returns what kinds of names are in the detail ({@link MARKS}). */
  get marks(): number {
    return this.#places[this.#at + 2 + DETAIL_NOTES.marks] ?? 0
  }

  /** Returns the JSON of a member of the detail; empty if it has none. */
  noted(member: 'authority' | 'path'): string {
    const at = this.#at + 2 + DETAIL_NOTES[member]
    return this.#bytes.toString('utf8', this.#places[at], this.#places[at + 1])
  }

  has(place: number): boolean {
    return this.from(place) !== this.to(place)
  }

  text(place: number): string {
    return this.#bytes.toString('utf8', this.from(place) + 1, this.to(place) - 1)
  }

  textOrNull(place: number): string | null {
    return this.#bytes[this.from(place)] === QUOTE ? this.text(place) : null
  }

  /** The same of a member that has few values. */
  frequentText(place: number): string {
    return frequent.text(this.#bytes, this.from(place) + 1, this.to(place) - 1)
  }

  frequentOrNull(place: number): string | null {
    return this.#bytes[this.from(place)] === QUOTE ? this.frequentText(place) : null
  }

  json(place: number): string {
    return this.#bytes.toString('utf8', this.from(place), this.to(place))
  }

  /** -1 of one that is negative. */
  integer(place: number): number {
    const [from, to] = [this.from(place), this.to(place)]
    if (this.#bytes[from] === MINUS) return -1
    let value = 0
    for (let at = from; at < to; at += 1) value = value * 10 + (this.#bytes[at] ?? 0) - ZERO
    return value
  }

  /** Copies a leaf without what an export adds behind a zero. Returns the length of both; 0 if it is too long. */
  copyLeaf(from: number, to: number): number {
    const [bytes, start] = [this.#bytes, this.from(PLACE_OF.action)]
    if (to - from >= leafBytes.length) return 0
    let [length, behind] = [1, from]
    for (const { place, label } of ADDED) {
      const first = this.from(place)
      // The digest may stand before the leaf.
      if (first < start || !this.has(place)) continue
      length += bytes.copy(leafBytes, length, behind, first - label)
      behind = this.to(place)
    }
    return length + bytes.copy(leafBytes, length, behind, to)
  }
}

/**
 * A row whose columns were read from its leaf, which is canonical to the last byte, and of which `row_hash` is
 * the digest: no other is made. So nobody need compare it with its leaf, nor look at types. Most columns are
 * read when they are asked for: a copy by spreading lacks them.
 */
export class LeafRow extends PlacedMembers implements StoredRow {
  readonly stream: string
  readonly seq: number
  readonly action: string
  readonly status: string
  readonly request_id: string | null
  readonly prev_hash: string
  readonly row_hash: string
  readonly v: LeafVersion
  readonly #hashes: Buffer
  readonly #hashAt: number
  #detail: UnknownRecord | null = null

  private constructor(bytes: Buffer, places: Int32Array, at: number, hashes: Buffer) {
    super(bytes, places, at)
    this.#hashes = hashes
    this.#hashAt = (at / PAGE_WIDTH) * HASH_BYTES
    this.stream = this.frequentText(PLACE_OF.stream)
    this.seq = this.integer(PLACE_OF.seq)
    this.action = this.frequentText(PLACE_OF.action)
    this.status = this.frequentText(PLACE_OF.status)
    this.request_id = this.textOrNull(PLACE_OF.request_id)
    this.prev_hash = this.text(PLACE_OF.prev_hash)
    this.row_hash = this.text(PLACE_OF.row_hash)
    this.v = this.integer(PLACE_OF.v) === 1 ? 1 : 2
  }

  /** The rows of a page; bytes of those lines that must be looked at otherwise. */
  static *ofPage({ bytes: all, places, hashes }: LeafPage): Generator<LeafRow | Buffer> {
    const bytes = Buffer.from(all.buffer, all.byteOffset, all.byteLength)
    const ofTree = Buffer.from(hashes.buffer, hashes.byteOffset, hashes.byteLength)
    for (let at = 0; at < places.length; at += PAGE_WIDTH)
      yield places[at + 3] === 0
        ? bytes.subarray(places[at], places[at + 1])
        : new LeafRow(bytes, places, at, ofTree)
  }

  /** The hash of the leaf in the tree. */
  get leafHash(): Buffer {
    return this.#hashes.length === 0
      ? Buffer.from(treeHash(this.copyWhole()), 'latin1')
      : this.#hashes.subarray(this.#hashAt, this.#hashAt + HASH_BYTES)
  }

  /** Reads a leaf; null if there is any doubt about it, or it differs from the columns stored alongside it. */
  static ofLeaf(leaf: Buffer, stored: ColumnsBesideLeaf): LeafRow | null {
    const block = Buffer.concat([Buffer.from(JSON.stringify(stored.row_hash) ?? ''), leaf])
    const [row, more] = LeafRow.ofPage(readLeaves(block, true, { most: 2 }))
    if (!(row instanceof LeafRow) || more) return null
    const { stream, seq, action, status, request_id: id, recorded_at: at, principal_id: who } = row
    const isSame = stream === stored.stream && seq === stored.seq && action === stored.action
    const isToo = status === stored.status && id === stored.request_id && row.row_hash === stored.row_hash
    return isSame && isToo && at === stored.recorded_at && who === stored.principal_id ? row : null
  }

  /** The members of `detail`. */
  get members(): UnknownRecord {
    if (this.#detail === null) {
      const parsed: unknown = JSON.parse(this.detail)
      this.#detail = isObject(parsed) ? parsed : {}
    }
    return this.#detail
  }

  get detail(): string {
    return this.json(PLACE_OF.detail)
  }

  get principal_id(): string | null {
    return this.frequentOrNull(PLACE_OF.principal_id)
  }

  get principal_type(): string | null {
    return this.frequentOrNull(PLACE_OF.principal_type)
  }

  get recorded_at(): string {
    return this.text(PLACE_OF.recorded_at)
  }

  get tool(): string | null {
    return this.frequentOrNull(PLACE_OF.tool)
  }

  get model(): string | null {
    return this.frequentOrNull(PLACE_OF.model)
  }

  get provider(): string | null {
    return this.frequentOrNull(PLACE_OF.provider)
  }

  get cert_thumbprint(): string | null {
    return this.frequentOrNull(PLACE_OF.cert_thumbprint)
  }

  get dpop_jkt(): string | null {
    return this.frequentOrNull(PLACE_OF.dpop_jkt)
  }

  get config_digest(): string {
    return this.frequentText(PLACE_OF.config_digest)
  }

  get version(): string {
    return this.frequentText(PLACE_OF.version)
  }
}

/** The version that the leaf of a row says; null if it says none that is known. */
export function rowLeafVersion(row: StoredRow): LeafVersion | null {
  if (row instanceof LeafRow) return row.v
  // SQLite keeps bytes if somebody has put them in the place of a text.
  const leaf: unknown = row.leaf
  return typeof leaf === 'string' ? leafVersion(leaf) : null
}
