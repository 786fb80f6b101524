import canonicalize from 'canonicalize'
import type { LedgerState } from '../authority/ledger-state.ts'
import { isInstant } from '../canonical/instant.ts'
import { LeafRow, rowLeafVersion } from '../canonical/leaf-row.ts'
import { GENESIS_HASH, hashOf, leafOf, type StoredRow } from '../record/leaf.ts'
import { OUTCOME_STATUSES } from '../record/outcomes.ts'
import { type ChainPosition, StreamHeads } from './heads.ts'

/** The lack of a row where one should stand: a line that is not one, a page that cannot be read. */
export interface DamagedRow {
  readonly damaged: string
  readonly stream?: unknown
  readonly seq?: unknown
}

export interface BadRow {
  readonly stream: string
  readonly seq: number
  /** The fault, as half a sentence. */
  readonly problem: string
}

export interface LedgerVerdict {
  readonly ok: boolean
  /** The number of whole rows: all, or those before the first bad one. */
  readonly rows: number
  readonly streams: number
  readonly first_bad?: BadRow
  /** Allowed decisions without outcome: calls under way, or a crash not recovered yet. No fault. */
  readonly open_decisions: number
}

/**
 * Verifies whole chains, row by row: each starts at 1 without gaps or twins; leaves are canonical, of version 1
 * and later 2, match the columns and the digests; columns have the types of docs/ledger.md#row. Takes rows by
 * seq, streams mixed, in constant memory. `add` says whether the row was good; after one that was not, nothing
 * more may be added. Does NOT see rows cut off the end, nor a chain rewritten whole: that takes a checkpoint kept
 * elsewhere.
 */
export interface ChainVerifier {
  add(row: StoredRow | DamagedRow): boolean
  verdict(): LedgerVerdict
}

interface ChainStart {
  /** True: the place and parent of each stream's first row are taken on trust. */
  readonly tail?: boolean
  /** The last row of each stream before the first. */
  readonly streams?: LedgerState['streams'] | undefined
  /** The heads of who takes each good row next, and moves them. Absent: its own. */
  readonly heads?: StreamHeads | undefined
}

export function chainVerifier({ tail = false, streams, heads: given }: ChainStart = {}): ChainVerifier {
  const heads = given ?? new StreamHeads(streams)
  const begun = new Set<string>()
  const open = openDecisions()
  let [rows, lastStream] = [0, 'main']
  let bad: BadRow | null = null

  function add(row: StoredRow | DamagedRow): boolean {
    bad = 'damaged' in row ? placed(row) : problemOf(row)
    if (bad || 'damaged' in row) return false
    if (!given) heads.advance(row)
    const { stream } = row
    if (stream !== lastStream || rows === 0) begun.add(stream)
    lastStream = stream
    rows += 1
    open.see(row)
    return true
  }

  function placed({ damaged: problem, stream: said, seq }: DamagedRow): BadRow {
    const stream = typeof said === 'string' ? said : lastStream
    const next = (heads.get(stream)?.seq ?? 0) + 1
    return { stream, seq: Number.isSafeInteger(seq) ? Math.min(next, Number(seq)) : next, problem }
  }

  function problemOf(row: StoredRow): BadRow | null {
    const before = heads.get(row.stream) ?? (tail ? beforeTail(row) : BEFORE_FIRST)
    return outOfPlace(row, before) ?? rowProblem(row, before)
  }

  function verdict(): LedgerVerdict {
    const found = { rows, streams: begun.size, open_decisions: open.count() }
    return bad ? { ok: false, ...found, first_bad: bad } : { ok: true, ...found }
  }

  return { add, verdict }
}

const BEFORE_FIRST: ChainPosition = { seq: 0, hash: GENESIS_HASH, version: 1 }

const beforeTail = ({ seq, prev_hash: hash }: StoredRow): ChainPosition => ({
  seq: seq - 1,
  hash,
  version: 1,
})

function outOfPlace({ stream, seq }: StoredRow, { seq: last }: ChainPosition): BadRow | null {
  if (!Number.isSafeInteger(seq)) return { stream, seq: last + 1, problem: `is numbered ${seq}` }
  if (seq === last + 1) return null
  if (seq > last) return { stream, seq: last + 1, problem: `is missing: ${last} is followed by ${seq}` }
  return {
    stream,
    seq,
    problem: seq === last ? 'is there twice' : `stands after ${last}: a duplicate, or out of order`,
  }
}

function rowProblem(row: StoredRow, before: ChainPosition): BadRow | null {
  const { stream, seq } = row
  const bad = (problem: string): BadRow => ({ stream, seq, problem })
  const version = rowLeafVersion(row)
  const isRead = row instanceof LeafRow
  if (version === null || !(isRead || leafOf(row, version) === row.leaf))
    return bad('was changed: its columns and its leaf do not say the same')
  if (!isRead && hashOf(row.leaf) !== row.row_hash)
    return bad('was changed: row_hash is not the digest of its leaf')
  if (row.prev_hash !== before.hash)
    return bad(`does not follow ${before.seq}: prev_hash is not its row_hash`)
  if (!isRead && !isTyped(row)) return bad('has a column that is of another type')
  // No earlier version of the service starts on a database that this one has migrated.
  if (version < before.version)
    return bad(`is of version ${version}, behind rows of version ${before.version}`)
  return isRead || isCanonicalObject(row.detail)
    ? null
    : bad(
        'has a detail that is not a canonical JSON object of at most 16 levels, or a number in it that is no integer',
      )
}

// An export may hold any value, whatever the types of its rows say.
function isTyped(row: StoredRow): boolean {
  return (
    isText(row.recorded_at) &&
    isInstant(row.recorded_at) &&
    isTextOrNull(row.request_id) &&
    isTextOrNull(row.principal_id) &&
    isTextOrNull(row.principal_type) &&
    isText(row.stream) &&
    isText(row.action) &&
    isText(row.status) &&
    isTextOrNull(row.tool) &&
    isTextOrNull(row.model) &&
    isTextOrNull(row.provider) &&
    isTextOrNull(row.cert_thumbprint) &&
    isTextOrNull(row.dpop_jkt) &&
    isText(row.config_digest) &&
    isText(row.version)
  )
}

// Half a surrogate pair has no bytes in UTF-8.
const isText = (value: unknown): boolean => typeof value === 'string' && value.isWellFormed()
const isTextOrNull = (value: unknown): boolean => value === null || isText(value)

// Else two implementations that read the same row would hash different bytes.
function isCanonicalObject(detail: string): boolean {
  if (detail === '{}') return true
  try {
    const members: unknown = JSON.parse(detail)
    if (!detail.startsWith('{')) return false
    // Text that parses to members in order, and that V8 writes as it stood, is canonical. Half a surrogate
    // pair it escapes.
    if (isInOrder(members, MAX_JSON_DEPTH) && JSON.stringify(members) === detail && !detail.includes('\\ud'))
      return true
    return hasOnlyIntegers(members, MAX_JSON_DEPTH) && canonicalize(members) === detail
  } catch (error) {
    // Not JSON, or with half a surrogate pair in it.
    if (error instanceof Error) return false
    throw error
  }
}

/** The levels that a detail may have (docs/ledger.md#leaf). */
const MAX_JSON_DEPTH = 16

/** True if all members are in the order of RFC 8785, every number is an integer, and nothing is deeper. */
function isInOrder(value: unknown, levels: number): boolean {
  if (levels < 0) return false
  if (typeof value === 'number') return Number.isSafeInteger(value)
  if (typeof value !== 'object' || value === null) return true
  if (Array.isArray(value)) return value.every((one) => isInOrder(one, levels - 1))
  let last = ''
  for (const name in value) {
    if (name < last || !isInOrder(value[name as keyof typeof value], levels - 1)) return false
    last = name
  }
  return true
}

function hasOnlyIntegers(value: unknown, levels: number): boolean {
  if (levels < 0) return false
  if (typeof value === 'number') return Number.isSafeInteger(value)
  if (typeof value !== 'object' || value === null) return true
  return Object.values(value).every((one) => hasOnlyIntegers(one, levels - 1))
}

// An honest log has as many as there are calls at one time. In another one the count is at least this.
const OPEN_LIMIT = 100_000

function openDecisions() {
  const open = new Set<string>()
  const see = ({ request_id: id, status }: StoredRow): void => {
    if (id === null) return
    if (status === 'allowed' && open.size < OPEN_LIMIT) open.add(id)
    if (OUTCOME_STATUSES.has(status)) open.delete(id)
  }
  return { see, count: () => open.size }
}
