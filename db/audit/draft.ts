import type { Entry } from './entry.ts'
import type { LeafFields } from './leaf.ts'

/** A row that lacks only its place in the chain. */
export type Draft = Omit<LeafFields, 'stream' | 'seq' | 'prev_hash' | 'version'>

// A text that a caller chooses (a model's name, a path) must not choose the size of the ledger.
const TEXT_LIMIT = 1_024
const DETAIL_LIMIT = 65_536
const DEPTH_LIMIT = 16

/**
 * Turns an entry into a draft, which hashes alike everywhere: texts well-formed and at most 1,024 characters,
 * without U+0000 (PostgreSQL cannot hold it), detail as canonical JSON (RFC 8785). Throws a TypeError that
 * names the place where detail holds anything but texts, truths, nulls, integers, arrays and plain objects.
 */
export function draftOf(entry: Entry): Draft {
  return {
    recorded_at: new Date(entry.at).toISOString(),
    request_id: textOrNull(entry.request_id),
    principal_id: textOrNull(entry.principal_id),
    principal_type: textOrNull(entry.principal_type),
    action: sound(entry.action),
    status: sound(entry.status),
    tool: textOrNull(entry.tool),
    model: textOrNull(entry.model),
    provider: textOrNull(entry.provider),
    cert_thumbprint: textOrNull(entry.cert_thumbprint),
    dpop_jkt: textOrNull(entry.dpop_jkt),
    detail: detailText(entry.detail),
    config_digest: sound(entry.config_digest),
  }
}

const textOrNull = (text: string | null): string | null => (text === null ? null : sound(text))

// What JSON writes as it stands: nothing to mend, nothing to escape. Nearly every text of a row is of these.
const PLAIN = /^[ !#-[\]-\uD7FF\uE000-\uFFFF]*$/

const isPlain = (text: string): boolean => text.length <= TEXT_LIMIT && PLAIN.test(text)

const sound = (text: string): string => (isPlain(text) ? text : mended(text))

// Cut first: the cut may halve a surrogate pair.
const mended = (text: string): string => text.slice(0, TEXT_LIMIT).toWellFormed().replaceAll('\0', '\uFFFD')

function detailText(detail: Entry['detail']): string {
  const text = canonicalText(detail, 'detail', 0)
  if (!text.startsWith('{')) throw new TypeError('audit detail is not an object')
  if (text.length > DETAIL_LIMIT) {
    throw new TypeError(`audit detail has ${text.length} characters, more than ${DETAIL_LIMIT}`)
  }
  return text
}

// In one pass: two rows of every call come by here. `canonicalize` is the oracle of its test. Takes unknown:
// what a handler read from an upstream's JSON is a float sooner or later, whatever its type says.
function canonicalText(value: unknown, place: string, depth: number): string {
  if (depth > DEPTH_LIMIT) throw new TypeError(`audit ${place} is nested deeper than ${DEPTH_LIMIT}`)
  if (typeof value === 'string') return isPlain(value) ? `"${value}"` : JSON.stringify(mended(value))
  if (typeof value === 'number') return integerText(value, place)
  if (value === null || typeof value === 'boolean') return String(value)
  if (Array.isArray(value)) return listText(value, place, depth)
  if (typeof value !== 'object' || !isRecord(value)) throw new TypeError(`audit ${place} is not JSON`)
  return objectText(value, place, depth)
}

function listText(values: readonly unknown[], place: string, depth: number): string {
  // Not map: it steps over holes.
  const items = Array.from(values, (item, index) => canonicalText(item, `${place}[${index}]`, depth + 1))
  return `[${items.join(',')}]`
}

function objectText(value: Readonly<Record<string, unknown>>, place: string, depth: number): string {
  let text = ''
  // The order of UTF-16 code units, which is RFC 8785's.
  for (const name of Object.keys(value).sort()) {
    const member = canonicalText(value[name], `${place}.${name}`, depth + 1)
    text += `${text === '' ? '' : ','}"${soundName(name, place)}":${member}`
  }
  return `{${text}}`
}

function integerText(value: number, place: string): string {
  if (!Number.isSafeInteger(value))
    throw new TypeError(`audit ${place} is ${value}: integers within ±2^53 only`)
  return String(value)
}

// Not mended like a text: two names that become one would lose a member. And none that JSON writes with a
// backslash: V8's JSON.parse can take such a name for another one that it met in an earlier text
// (nodejs/node#63785).
function soundName(name: string, place: string): string {
  if (!isPlain(name) && (name !== mended(name) || JSON.stringify(name) !== `"${name}"`))
    throw new TypeError(`audit ${place} has a member whose name cannot be kept`)
  return name
}

function isRecord(value: object): value is Readonly<Record<string, unknown>> {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
