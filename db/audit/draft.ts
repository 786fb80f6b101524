import type { Selectable } from 'kysely'
import type { Schema } from '../schema.ts'
import type { Entry } from './entry.ts'

/** The canonical text of a leaf (RFC 8785), around the two values that its place in the chain decides. */
export interface LeafPieces {
  readonly beforePrev: string
  readonly beforeSeq: string
  readonly afterSeq: string
}

/** A row that lacks only its place in the chain: its leaf, and the columns that are stored beside the leaf. */
export interface Draft extends LeafPieces {
  readonly recorded_at: string
  readonly request_id: string | null
  readonly principal_id: string | null
  readonly action: string
  readonly status: string
}

/** The members that all rows of one writer have alike. `version`: the service's. */
export interface Origin {
  readonly stream: string
  readonly version: string
}

/** `v` of the rows that are written (docs/ledger.md#versions). */
export const WRITTEN = 2

// A text that a caller chooses (a model's name, a path) must not choose the size of the ledger.
const TEXT_LIMIT = 1_024
const DETAIL_LIMIT = 65_536
const DEPTH_LIMIT = 16

/**
 * Turns an entry into a draft, which hashes alike everywhere: texts well-formed and at most 1,024 characters,
 * without U+0000 (PostgreSQL cannot hold it), detail as canonical JSON (RFC 8785). Throws a TypeError that
 * names the place where detail holds anything but texts, truths, nulls, integers, arrays and plain objects.
 */
export function draftOf(entry: Entry, origin: Origin): Draft {
  const recorded_at = new Date(entry.at).toISOString()
  const detail = detailText(entry.detail)
  const { beforePrev, beforeSeq, afterSeq } = piecesOf(
    { ...entry, ...origin, recorded_at, detail },
    quoteSound,
  )
  return {
    recorded_at,
    request_id: entry.request_id === null ? null : sound(entry.request_id),
    principal_id: entry.principal_id === null ? null : sound(entry.principal_id),
    action: sound(entry.action),
    status: sound(entry.status),
    beforePrev,
    beforeSeq,
    afterSeq,
  }
}

type LeafTexts = Omit<Selectable<Schema['audit_log']>, 'seq' | 'prev_hash' | 'row_hash' | 'leaf'>

/** Members that an export adds in their sorted places; each with the comma in front of it, or empty. */
export interface Additions {
  readonly principalName: string
  readonly seal: string
  readonly subjectName: string
}

const NOTHING: Additions = { principalName: '', seal: '', subjectName: '' }

/**
 * Writes the leaf of a row, and what an export adds to it. `detail` goes in as it stands, so it must be canonical
 * already. `quote` writes a text as JSON does, or `null`.
 */
export function piecesOf(
  row: LeafTexts,
  quote: (text: string | null) => string,
  v: number = WRITTEN,
  { principalName, seal, subjectName } = NOTHING,
): LeafPieces {
  // The names stand in the order of their UTF-16 code units, which is RFC 8785's. A template takes a third of
  // the time that a general canonicaliser takes.
  return {
    beforePrev:
      `{"action":${quote(row.action)},"cert_thumbprint":${quote(row.cert_thumbprint)},` +
      `"config_digest":${quote(row.config_digest)},"detail":${row.detail},"dpop_jkt":${quote(row.dpop_jkt)},` +
      `"model":${quote(row.model)},"prev_hash":`,
    beforeSeq:
      `,"principal_id":${quote(row.principal_id)}${principalName},"principal_type":${quote(row.principal_type)},` +
      `"provider":${quote(row.provider)},"recorded_at":${quote(row.recorded_at)},` +
      `"request_id":${quote(row.request_id)}${seal},"seq":`,
    afterSeq:
      `,"status":${quote(row.status)},"stream":${quote(row.stream)}${subjectName},"tool":${quote(row.tool)},` +
      `"v":${v},"version":${quote(row.version)}}`,
  }
}

// What JSON writes as it stands: nothing to mend, nothing to escape. Nearly every text of a row is of these.
const PLAIN = /^[ !#-[\]-\uD7FF\uE000-\uFFFF]*$/

const isPlain = (text: string): boolean => text.length <= TEXT_LIMIT && PLAIN.test(text)

const sound = (text: string): string => (isPlain(text) ? text : mended(text))

// Cut first: the cut may halve a surrogate pair.
const mended = (text: string): string => text.slice(0, TEXT_LIMIT).toWellFormed().replaceAll('\0', '\uFFFD')

function quoteSound(text: string | null): string {
  if (text === null) return 'null'
  return isPlain(text) ? `"${text}"` : JSON.stringify(mended(text))
}

function detailText(detail: Entry['detail']): string {
  const text = canonicalText(detail, 'detail', null)
  if (!text.startsWith('{')) throw new TypeError('audit detail is not an object')
  if (text.length > DETAIL_LIMIT) {
    throw new TypeError(`audit detail has ${text.length} characters, more than ${DETAIL_LIMIT}`)
  }
  return text
}

/** Where a value stands in detail: its name or index, and what holds it. Put into words only for an error. */
interface Place {
  readonly name: string | number
  readonly holder: Place | null
  readonly depth: number
}

// In one pass: two rows of every call come by here. `canonicalize` is the oracle of its test. Takes unknown:
// what a handler read from an upstream's JSON is a float sooner or later, whatever its type says.
function canonicalText(value: unknown, name: string | number, holder: Place | null): string {
  const depth = holder === null ? 0 : holder.depth + 1
  if (depth > DEPTH_LIMIT) throw unfit(name, holder, `is nested deeper than ${DEPTH_LIMIT}`)
  if (typeof value === 'string') return quoteSound(value)
  if (typeof value === 'number') {
    if (Number.isSafeInteger(value)) return String(value)
    throw unfit(name, holder, `is ${value}: integers within ±2^53 only`)
  }
  if (value === null || typeof value === 'boolean') return String(value)
  if (Array.isArray(value)) return listText(value, { name, holder, depth })
  if (typeof value !== 'object' || !isRecord(value)) throw unfit(name, holder, 'is not JSON')
  return objectText(value, { name, holder, depth })
}

function listText(values: readonly unknown[], here: Place): string {
  let text = ''
  // By index: an iteration by map steps over holes.
  for (let index = 0; index < values.length; index += 1)
    text += `${index === 0 ? '' : ','}${canonicalText(values[index], index, here)}`
  return `[${text}]`
}

function objectText(value: Readonly<Record<string, unknown>>, here: Place): string {
  let text = ''
  for (const name of sortedNames(value)) {
    const member = canonicalText(value[name], name, here)
    text += `${text === '' ? '' : ','}"${soundName(name, here)}":${member}`
  }
  return `{${text}}`
}

const FEW = 16

// In the order of UTF-16 code units, which is RFC 8785's. A few are put in order by insertion: sort() makes lists
// of its own, which were a quarter of what a row allocated. Many are not, or a stranger could make it take long.
function sortedNames(value: object): readonly string[] {
  const names = Object.keys(value)
  if (names.length > FEW) return names.sort()
  for (const [end, name] of names.entries()) {
    let at = end
    for (; at > 0 && name < (names[at - 1] ?? ''); at -= 1) names[at] = names[at - 1] ?? ''
    names[at] = name
  }
  return names
}

// Not mended like a text: two names that become one would lose a member. And none that JSON writes with a
// backslash: V8's JSON.parse can take such a name for another one that it met in an earlier text
// (nodejs/node#63785).
function soundName(name: string, here: Place): string {
  if (!isPlain(name) && (name !== mended(name) || JSON.stringify(name) !== `"${name}"`))
    throw unfit(here.name, here.holder, 'has a member whose name cannot be kept')
  return name
}

const unfit = (name: string | number, holder: Place | null, problem: string): TypeError =>
  new TypeError(`audit ${placeText(name, holder)} ${problem}`)

function placeText(name: string | number, holder: Place | null): string {
  if (holder === null) return String(name)
  return placeText(holder.name, holder.holder) + (typeof name === 'number' ? `[${name}]` : `.${name}`)
}

function isRecord(value: object): value is Readonly<Record<string, unknown>> {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
