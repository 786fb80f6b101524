import { hash } from 'node:crypto'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import { leafDetailOf } from '../record/draft.ts'
import { type LeafVersion, leafVersion, type StoredRow } from '../record/leaf.ts'
import { isInstant } from './instant.ts'
import { type LeafMember, LeafReader } from './leaf-reader.ts'

// A row takes the reader's results before it reads anything else.
const reader = new LeafReader()

/** The members that an export adds to a leaf, in their order. */
const ADDED: readonly LeafMember[] = ['principal_name', 'result', 'row_hash', 'subject_name']

/** The columns that an engine stores alongside a leaf. */
type ColumnsBesideLeaf = Pick<
  StoredRow,
  'stream' | 'seq' | 'recorded_at' | 'request_id' | 'principal_id' | 'action' | 'status' | 'row_hash'
>

/**
 * A row whose columns were read from its leaf, which is canonical to the last byte: no other is made. So
 * nobody need compare it with its leaf, nor look at types. Does NOT say that `row_hash` is the digest of the
 * leaf. Most columns are read when they are asked for: a copy by spreading lacks them.
 */
export class LeafRow implements StoredRow {
  readonly stream: string
  readonly seq: number
  readonly action: string
  readonly status: string
  readonly request_id: string | null
  readonly prev_hash: string
  readonly row_hash: string
  readonly v: LeafVersion
  /** The leaf, as UTF-8. */
  readonly bytes: Buffer
  #fields: UnknownRecord | null = null

  private constructor(rowHash: string, bytes: Buffer, from: number, to: number) {
    this.stream = reader.text('stream')
    this.seq = reader.integer('seq')
    this.action = reader.text('action')
    this.status = reader.text('status')
    this.request_id = reader.textOrNull('request_id')
    this.prev_hash = reader.text('prev_hash')
    this.row_hash = rowHash
    this.v = reader.integer('v') === 1 ? 1 : 2
    this.bytes = bytes.subarray(from, withoutAdded(bytes, from, to))
  }

  /**
   * Reads a leaf, in valid UTF-8; null if it is not canonical beyond doubt, or differs from the columns
   * stored alongside it.
   */
  static ofLeaf(leaf: Buffer, stored: ColumnsBesideLeaf): LeafRow | null {
    if (reader.read(leaf, 0, false) !== leaf.length || !isKnown()) return null
    if (reader.text('recorded_at') !== stored.recorded_at) return null
    if (reader.textOrNull('principal_id') !== stored.principal_id) return null
    const row = new LeafRow(stored.row_hash, leaf, 0, leaf.length)
    const { stream, seq, action, status, request_id: id } = row
    const isSame = stream === stored.stream && seq === stored.seq && action === stored.action
    return isSame && status === stored.status && id === stored.request_id ? row : null
  }

  /**
   * Reads a line of an export, in valid UTF-8, without its line feed; null if it is not canonical beyond
   * doubt. The bytes of a line that was read are the row's: it moves them.
   */
  static ofLine(bytes: Buffer, from: number, to: number): LeafRow | null {
    if (reader.read(bytes, from, true) !== to || !isKnown() || !reader.has('row_hash')) return null
    const result = reader.has('result') ? reader.text('result') : null
    const expected = reader.text('action').startsWith('mcp_') ? reader.text('status') : null
    return result === expected ? new LeafRow(reader.text('row_hash'), bytes, from, to) : null
  }

  /** Hex SHA-256 of the leaf. */
  digest(): string {
    return hash('sha256', this.bytes)
  }

  /** The members of the leaf, detail as an object. */
  get fields(): UnknownRecord {
    if (this.#fields === null) {
      const parsed: unknown = JSON.parse(this.leaf)
      this.#fields = isObject(parsed) ? parsed : {}
    }
    return this.#fields
  }

  get leaf(): string {
    return this.bytes.toString()
  }

  get detail(): string {
    return leafDetailOf(this.leaf)
  }

  get principal_id(): string | null {
    return this.#nullable('principal_id')
  }

  get principal_type(): string | null {
    return this.#nullable('principal_type')
  }

  get recorded_at(): string {
    return this.#text('recorded_at')
  }

  get tool(): string | null {
    return this.#nullable('tool')
  }

  get model(): string | null {
    return this.#nullable('model')
  }

  get provider(): string | null {
    return this.#nullable('provider')
  }

  get cert_thumbprint(): string | null {
    return this.#nullable('cert_thumbprint')
  }

  get dpop_jkt(): string | null {
    return this.#nullable('dpop_jkt')
  }

  get config_digest(): string {
    return this.#text('config_digest')
  }

  get version(): string {
    return this.#text('version')
  }

  // Proven by the reader: texts, or null.
  #text(name: LeafMember): string {
    return String(this.fields[name])
  }

  #nullable(name: LeafMember): string | null {
    const value = this.fields[name]
    return typeof value === 'string' ? value : null
  }
}

/** The version that the leaf of a row says; null if it says none that is known. */
export function rowLeafVersion(row: StoredRow): LeafVersion | null {
  if (row instanceof LeafRow) return row.v
  // SQLite keeps bytes if somebody has put them in the place of a text.
  const leaf: unknown = row.leaf
  return typeof leaf === 'string' ? leafVersion(leaf) : null
}

/** True if the leaf has a known version, a place that a row can have, and a valid time. */
const isKnown = (): boolean => {
  const version = reader.integer('v')
  return (
    (version === 1 || version === 2) && reader.integer('seq') >= 0 && isInstant(reader.text('recorded_at'))
  )
}

/** Closes the gaps that the added members leave. Returns the new end of the leaf. */
function withoutAdded(bytes: Buffer, from: number, to: number): number {
  let [end, behind] = [from, from]
  for (const member of ADDED) {
    if (!reader.has(member)) continue
    const start = reader.start(member)
    if (end !== behind) bytes.copyWithin(end, behind, start)
    end += start - behind
    behind = reader.end(member)
  }
  if (end !== behind) bytes.copyWithin(end, behind, to)
  return end + to - behind
}
