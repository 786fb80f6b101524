import type { Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import type { LedgerEntry } from './entry.ts'

/** The canonical text of a leaf (RFC 8785), around the two values that its place in the chain decides. */
export interface LeafPieces {
  readonly beforePrev: string
  readonly beforeSeq: string
  readonly afterSeq: string
}

/** A row without its place in the chain. Its detail stands in the pieces alone. */
export type RowDraft = LeafPieces &
  Omit<
    Selectable<DatabaseSchema['audit_log']>,
    'stream' | 'seq' | 'detail' | 'prev_hash' | 'row_hash' | 'leaf'
  >

/** The members that all rows of one writer have alike. `version`: the service's. */
export interface RowOrigin {
  readonly stream: string
  readonly version: string
}

/** `v` of the rows that are written (docs/ledger.md#versions). */
export const WRITTEN_LEAF_VERSION = 2

// A text that a caller chooses (a model's name, a path) must not choose the size of the ledger.
const TEXT_LIMIT = 1_024
/** Bytes of a leaf: its length stands in two bytes of a bundle of entries (C2SP tlog-tiles). */
export const LEAF_LIMIT = 65_535
/**
 * The bytes that the place in the chain takes in place of two zeros: a hash in quotation marks, and a number.
 */
const PLACE_BYTES = 66 + 16 - 2
const DEPTH_LIMIT = 16

/**
 * Turns an entry into a draft, which hashes alike everywhere: texts well-formed and at most 1,024 characters,
 * without U+0000 (PostgreSQL cannot hold it), detail as canonical JSON (RFC 8785). Throws a TypeError that
 * names the place if detail holds anything but texts, truths, nulls, integers, arrays and plain objects.
 */
export function draftOf(entry: LedgerEntry, { stream, version }: RowOrigin): RowDraft {
  const row = {
    recorded_at: new Date(entry.at).toISOString(),
    request_id: soundOrNull(entry.request_id),
    principal_id: soundOrNull(entry.principal_id),
    principal_type: soundOrNull(entry.principal_type),
    action: sanitizeText(entry.action),
    status: sanitizeText(entry.status),
    tool: soundOrNull(entry.tool),
    model: soundOrNull(entry.model),
    provider: soundOrNull(entry.provider),
    cert_thumbprint: soundOrNull(entry.cert_thumbprint),
    dpop_jkt: soundOrNull(entry.dpop_jkt),
    detail: canonicalValue(entry.detail, 'detail', null),
    config_digest: sanitizeText(entry.config_digest),
    stream,
    version,
    prev_hash: 0,
    seq: 0,
  }
  const text = leafText(row)
  assertLeaf(text)
  // Member by member: V8 takes several µs to leave a few out.
  return {
    recorded_at: row.recorded_at,
    request_id: row.request_id,
    principal_id: row.principal_id,
    principal_type: row.principal_type,
    action: row.action,
    status: row.status,
    tool: row.tool,
    model: row.model,
    provider: row.provider,
    cert_thumbprint: row.cert_thumbprint,
    dpop_jkt: row.dpop_jkt,
    config_digest: row.config_digest,
    version,
    ...cutLeaf(text),
  }
}

type LeafValues = Readonly<
  Record<Exclude<keyof Selectable<DatabaseSchema['audit_log']>, 'row_hash' | 'leaf'>, unknown>
>

export interface ExportAdditions {
  readonly principal_name?: string | undefined
  readonly result?: string | undefined
  readonly row_hash?: string
  readonly subject_name?: string | undefined
}

/**
 * Writes a leaf, and an export's additions to it. The names stand in the order of their UTF-16 code units,
 * which is RFC 8785's; JSON.stringify writes strings and integers exactly as that demands.
 */
export const leafText = (row: LeafValues, v = WRITTEN_LEAF_VERSION, more: ExportAdditions = {}): string =>
  JSON.stringify({
    action: row.action,
    cert_thumbprint: row.cert_thumbprint,
    config_digest: row.config_digest,
    detail: row.detail,
    dpop_jkt: row.dpop_jkt,
    model: row.model,
    prev_hash: row.prev_hash,
    principal_id: row.principal_id,
    principal_name: more.principal_name,
    principal_type: row.principal_type,
    provider: row.provider,
    recorded_at: row.recorded_at,
    request_id: row.request_id,
    result: more.result,
    row_hash: more.row_hash,
    seq: row.seq,
    status: row.status,
    stream: row.stream,
    subject_name: more.subject_name,
    tool: row.tool,
    v,
    version: row.version,
  })

// In a leaf, only texts stand before and after detail, and no text has a bare quotation mark: so these are
// found at their places, whatever a member of detail is called.
const DETAIL = ',"detail":'
const DPOP_JKT = ',"dpop_jkt":'
const PREV_HASH = ',"prev_hash":'
const SEQ = ',"seq":'

export const leafDetailOf = (leaf: string): string =>
  leaf.slice(leaf.indexOf(DETAIL) + DETAIL.length, leaf.lastIndexOf(DPOP_JKT))

// Each of the two stands in for itself as one zero.
function cutLeaf(leaf: string): LeafPieces {
  const prev = leaf.lastIndexOf(PREV_HASH) + PREV_HASH.length
  const seq = leaf.indexOf(SEQ, prev) + SEQ.length
  return {
    beforePrev: leaf.slice(0, prev),
    beforeSeq: leaf.slice(prev + 1, seq),
    afterSeq: leaf.slice(seq + 1),
  }
}

const soundOrNull = (text: string | null): string | null => (text === null ? null : sanitizeText(text))

const sanitizeText = (text: string): string =>
  text.length <= TEXT_LIMIT && text.isWellFormed() && !text.includes('\0') ? text : truncateAndRepair(text)

// Cut first: the cut may halve a surrogate pair.
const truncateAndRepair = (text: string): string =>
  text.slice(0, TEXT_LIMIT).toWellFormed().replaceAll('\0', '\uFFFD')

function assertLeaf(text: string): void {
  if (!leafDetailOf(text).startsWith('{')) throw new TypeError('audit detail is not an object')
  // No character has more than three bytes: most rows are not counted.
  if (text.length * 3 + PLACE_BYTES <= LEAF_LIMIT) return
  const bytes = Buffer.byteLength(text) + PLACE_BYTES
  if (bytes > LEAF_LIMIT) throw new TypeError(`audit row has ${bytes} bytes, more than ${LEAF_LIMIT}`)
}

/** The place of a value in detail: its name or index, and its holder. Put into words only for an error. */
interface DetailPlace {
  readonly name: string | number
  readonly holder: DetailPlace | null
  readonly depth: number
}

// A copy of a value that JSON.stringify writes in canonical form: two rows of every call come by here, and
// nothing else does it with so little garbage. `canonicalize` is the oracle of its test. Takes unknown: a
// value that a handler read from an upstream's JSON is a float sooner or later, whatever its type says.
function canonicalValue(value: unknown, name: string | number, holder: DetailPlace | null): unknown {
  const depth = holder === null ? 0 : holder.depth + 1
  if (depth > DEPTH_LIMIT) throw detailError(name, holder, `is nested deeper than ${DEPTH_LIMIT}`)
  if (typeof value === 'string') return sanitizeText(value)
  if (typeof value === 'number') {
    if (Number.isSafeInteger(value)) return value
    throw detailError(name, holder, `is ${value}: integers within ±2^53 only`)
  }
  if (value === null || typeof value === 'boolean') return value
  if (Array.isArray(value)) return canonicalList(value, { name, holder, depth })
  if (typeof value !== 'object' || !isRecord(value)) throw detailError(name, holder, 'is not JSON')
  return canonicalRecord(value, { name, holder, depth })
}

function canonicalList(values: readonly unknown[], here: DetailPlace): readonly unknown[] {
  const copy: unknown[] = []
  // An index: map steps over holes.
  for (let index = 0; index < values.length; index += 1) copy.push(canonicalValue(values[index], index, here))
  return copy
}

// The names that an object keeps in the order of their coming, and that JSON writes without a backslash. All
// of ours.
const ORDINARY = /^[A-Za-z][\w.:/-]{0,63}$/

function canonicalRecord(value: Readonly<Record<string, unknown>>, here: DetailPlace): object {
  const names = sortedNames(value)
  if (!names.every((name) => ORDINARY.test(name))) return strangeRecord(value, names, here)
  const copy: Record<string, unknown> = {}
  for (const name of names) copy[name] = canonicalValue(value[name], name, here)
  return copy
}

// An object puts names such as "10" first, whatever came before them: a proxy tells JSON.stringify our order.
function strangeRecord(
  value: Readonly<Record<string, unknown>>,
  names: readonly string[],
  here: DetailPlace,
): object {
  const members = names.map(
    (name) => [soundName(name, here), canonicalValue(value[name], name, here)] as const,
  )
  return new Proxy(Object.fromEntries(members), { ownKeys: () => names })
}

const FEW = 16

function sortedNames(value: object): readonly string[] {
  const names = Object.keys(value)
  if (names.length > FEW) return names.sort()
  for (let end = 1; end < names.length; end += 1) {
    const name = names[end] ?? ''
    let at = end
    for (; at > 0 && name < (names[at - 1] ?? ''); at -= 1) names[at] = names[at - 1] ?? ''
    names[at] = name
  }
  return names
}

// Not mended like a text: two names that become one would lose a member. And none that JSON writes with a
// backslash: V8's JSON.parse can take such a name for another one that it met in an earlier text
// (nodejs/node#63785).
function soundName(name: string, here: DetailPlace): string {
  if (name !== truncateAndRepair(name) || JSON.stringify(name) !== `"${name}"`)
    throw detailError(here.name, here.holder, 'has a member whose name cannot be kept')
  return name
}

const detailError = (name: string | number, holder: DetailPlace | null, problem: string): TypeError =>
  new TypeError(`audit ${placeText(name, holder)} ${problem}`)

function placeText(name: string | number, holder: DetailPlace | null): string {
  if (holder === null) return String(name)
  return placeText(holder.name, holder.holder) + (typeof name === 'number' ? `[${name}]` : `.${name}`)
}

function isRecord(value: object): value is Readonly<Record<string, unknown>> {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
