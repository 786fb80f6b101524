import type { Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { BY_WRITER } from '../meters/detail.ts'
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

/** Stands in a draft for {@link BY_WRITER}. No JSON text has this character. */
const WRITER_PLACE = '\u0001'

/** Counts the numbers that a draft leaves to its writer. */
export function placesIn({ beforePrev }: Pick<RowDraft, 'beforePrev'>): number {
  let places = 0
  for (let at = beforePrev.indexOf(WRITER_PLACE); at >= 0; at = beforePrev.indexOf(WRITER_PLACE, at + 1))
    places += 1
  return places
}

/** Returns a function that puts the numbers, one after the other, into the places of drafts. */
export function placeFiller(numbers: readonly number[]): (draft: RowDraft) => RowDraft {
  const left = numbers.values()
  return (draft) =>
    draft.beforePrev.includes(WRITER_PLACE)
      ? {
          ...draft,
          beforePrev: draft.beforePrev.replaceAll(WRITER_PLACE, () => String(left.next().value ?? 0)),
        }
      : draft
}

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
/** The bytes of the place in the chain: a hash in quotation marks, and a number. */
const PLACE_BYTES = 66 + 16
/** The bytes of a number that the writer puts in. */
const NUMBER_BYTES = 16
/** The bytes of all numbers of the limits of a call (docs/limits.md). */
const MAX_NUMBERS_BYTES = 32 * NUMBER_BYTES
const DEPTH_LIMIT = 16

/**
 * Turns an entry into a draft, which hashes alike everywhere: texts well-formed and at most 1,024 characters,
 * without U+0000 (PostgreSQL cannot hold it), detail as canonical JSON (RFC 8785). Throws a TypeError that
 * names the place if detail holds anything but texts, truths, nulls, integers, arrays and plain objects.
 */
export function draftOf(entry: LedgerEntry, { stream, version }: RowOrigin): RowDraft {
  const recorded_at = new Date(entry.at).toISOString()
  const request_id = soundOrNull(entry.request_id)
  const principal_id = soundOrNull(entry.principal_id)
  const principal_type = soundOrNull(entry.principal_type)
  const action = sanitizeText(entry.action)
  const status = sanitizeText(entry.status)
  const tool = soundOrNull(entry.tool)
  const model = soundOrNull(entry.model)
  const provider = soundOrNull(entry.provider)
  const cert_thumbprint = soundOrNull(entry.cert_thumbprint)
  const dpop_jkt = soundOrNull(entry.dpop_jkt)
  const config_digest = sanitizeText(entry.config_digest)
  // The members in the order of leafText, which its test holds them to.
  const beforePrev =
    `{"action":${quote(action)},"cert_thumbprint":${quote(cert_thumbprint)},"config_digest":` +
    `${quote(config_digest)},"detail":${detailText(entry.detail)},"dpop_jkt":${quote(dpop_jkt)}` +
    `,"model":${quote(model)},"prev_hash":`
  const beforeSeq =
    `,"principal_id":${quote(principal_id)},"principal_type":${quote(principal_type)},"provider":` +
    `${quote(provider)},"recorded_at":"${recorded_at}","request_id":${quoteOnce(request_id)},"seq":`
  const afterSeq =
    `,"status":${quote(status)},"stream":${quote(stream)},"tool":${quote(tool)}` +
    `,"v":${WRITTEN_LEAF_VERSION},"version":${quote(version)}}`
  assertLength(beforePrev, beforeSeq, afterSeq)
  return {
    ...{ recorded_at, request_id, principal_id, principal_type, action, status, tool, model, provider },
    ...{ cert_thumbprint, dpop_jkt, config_digest, version, beforePrev, beforeSeq, afterSeq },
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
export const leafDetailOf = (leaf: string): string =>
  leaf.slice(leaf.indexOf(DETAIL) + DETAIL.length, leaf.lastIndexOf(DPOP_JKT))

const soundOrNull = (text: string | null): string | null => (text === null ? null : sanitizeText(text))

// What stands in JSON as it is: ASCII without control characters, quotation mark and backslash.
const PLAIN = /^[ !#-[\]-~]{0,1024}$/

const sanitizeText = (text: string): string => (PLAIN.test(text) ? text : truncateAndRepair(text))

// Cut first: the cut may halve a surrogate pair.
const truncateAndRepair = (text: string): string =>
  text.slice(0, TEXT_LIMIT).toWellFormed().replaceAll('\0', '\uFFFD')

function assertLength(...pieces: readonly [string, string, string]): void {
  const length = pieces[0].length + pieces[1].length + pieces[2].length
  // No character has more than three bytes: most rows are not counted.
  if (length * 3 + PLACE_BYTES + MAX_NUMBERS_BYTES <= LEAF_LIMIT) return
  const numbers = placesIn({ beforePrev: pieces[0] }) * (NUMBER_BYTES - 1)
  const bytes = Buffer.byteLength(pieces.join('')) + PLACE_BYTES + numbers
  if (bytes > LEAF_LIMIT) throw new TypeError(`audit row has ${bytes} bytes, more than ${LEAF_LIMIT}`)
}

const quoteOnce = (sound: string | null): string => (sound === null ? 'null' : JSON.stringify(sound))

/** Texts that come again, as they stand in JSON: of few principals, models and configurations. */
const quoted = new Map<string, string>()
const MAX_QUOTED = 4_096
const MAX_QUOTED_LENGTH = 128

/** Writes a sound text as JSON. */
function quote(sound: string | null): string {
  if (sound === null) return 'null'
  const known = quoted.get(sound)
  if (known !== undefined) return known
  const text = JSON.stringify(sound)
  if (sound.length > MAX_QUOTED_LENGTH) return text
  if (quoted.size >= MAX_QUOTED) quoted.clear()
  quoted.set(sound, text)
  return text
}

/** The place of a value in detail: its name or index, and its holder. Put into words only for an error. */
interface DetailPlace {
  readonly name: string | number
  readonly holder: DetailPlace | null
  readonly depth: number
}

function detailText(detail: unknown): string {
  if (typeof detail !== 'object' || detail === null || !isRecord(detail))
    throw new TypeError('audit detail is not an object')
  return recordText(detail, { name: 'detail', holder: null, depth: 0 })
}

// Writes a value in canonical form (RFC 8785): two rows of every call come by here. `canonicalize` is the
// oracle of its test. Takes unknown: a value that a handler read from an upstream's JSON is a float sooner or
// later, whatever its type says.
function valueText(value: unknown, name: string | number, holder: DetailPlace): string {
  const depth = holder.depth + 1
  if (depth > DEPTH_LIMIT) throw detailError(name, holder, `is nested deeper than ${DEPTH_LIMIT}`)
  if (typeof value === 'string')
    return PLAIN.test(value) ? `"${value}"` : JSON.stringify(truncateAndRepair(value))
  if (typeof value === 'number') {
    // Of a negative zero it writes no sign.
    if (Number.isSafeInteger(value)) return String(value)
    throw detailError(name, holder, `is ${value}: integers within ±2^53 only`)
  }
  if (value === null || typeof value === 'boolean') return String(value)
  if (value === BY_WRITER) return WRITER_PLACE
  if (Array.isArray(value)) return listText(value, { name, holder, depth })
  if (typeof value !== 'object' || !isRecord(value)) throw detailError(name, holder, 'is not JSON')
  return recordText(value, { name, holder, depth })
}

function listText(values: readonly unknown[], here: DetailPlace): string {
  let text = ''
  // An index: map steps over holes.
  for (let index = 0; index < values.length; index += 1)
    text += (index === 0 ? '' : ',') + valueText(values[index], index, here)
  return `[${text}]`
}

// All names of ours.
const ORDINARY = /^[A-Za-z][\w.:/-]{0,63}$/

/** The ordinary names that were met, as they stand before their values. */
const names = new Map<string, string>()

function nameText(name: string, here: DetailPlace): string {
  const text = `"${soundName(name, here)}":`
  if (!ORDINARY.test(name)) return text
  if (names.size >= MAX_QUOTED) names.clear()
  names.set(name, text)
  return text
}

function recordText(value: Readonly<Record<string, unknown>>, here: DetailPlace): string {
  let text = ''
  for (const name of sortedNames(value)) {
    const start = names.get(name) ?? nameText(name, here)
    text += (text === '' ? start : `,${start}`) + valueText(value[name], name, here)
  }
  return `{${text}}`
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
