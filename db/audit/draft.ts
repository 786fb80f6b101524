import canonicalize from 'canonicalize'
import type { Json } from '../json.ts'
import { timestamp } from '../timestamp.ts'
import type { Entry } from './entry.ts'
import type { LeafFields } from './leaf.ts'

/** A row that lacks only its place in the chain. */
export type Draft = Omit<LeafFields, 'stream' | 'seq' | 'prev_hash' | 'version'>

// What a stranger chooses (a model's name, a path) must not choose the size of the ledger.
const TEXT_LIMIT = 1_024
const DETAIL_LIMIT = 65_536
const DEPTH_LIMIT = 16

/**
 * Turns an entry into what can be hashed the same way everywhere: texts well-formed and at most 1,024 characters,
 * without U+0000 (PostgreSQL cannot hold it), detail as canonical JSON (RFC 8785).
 * Throws a TypeError that names the place where detail holds anything but texts, truths, nulls, integers, arrays and plain objects.
 */
export function draftOf(entry: Entry): Draft {
  return {
    recorded_at: timestamp(entry.at),
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

// Cut first: the cut may halve a surrogate pair.
const sound = (text: string): string => text.slice(0, TEXT_LIMIT).toWellFormed().replaceAll('\0', '\uFFFD')

function detailText(detail: Entry['detail']): string {
  const text = canonicalize(soundJson(detail, 'detail', 0))
  if (text === undefined || !text.startsWith('{')) throw new TypeError('audit detail is not an object')
  if (text.length > DETAIL_LIMIT) {
    throw new TypeError(`audit detail has ${text.length} characters, more than ${DETAIL_LIMIT}`)
  }
  return text
}

// Takes unknown: what a handler read from an upstream's JSON is a float sooner or later, whatever its type says.
function soundJson(value: unknown, place: string, depth: number): Json {
  if (depth > DEPTH_LIMIT) throw new TypeError(`audit ${place} is nested deeper than ${DEPTH_LIMIT}`)
  if (value === null || typeof value === 'boolean') return value
  if (typeof value === 'string') return sound(value)
  if (typeof value === 'number') return integer(value, place)
  if (Array.isArray(value))
    return value.map((item, index) => soundJson(item, `${place}[${index}]`, depth + 1))
  if (typeof value !== 'object' || !isPlain(value)) throw new TypeError(`audit ${place} is not JSON`)
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      soundName(name, place),
      soundJson(member, `${place}.${name}`, depth + 1),
    ]),
  )
}

function integer(value: number, place: string): number {
  if (!Number.isSafeInteger(value))
    throw new TypeError(`audit ${place} is ${value}: integers within ±2^53 only`)
  return value
}

// Not mended like a text: two names that become one would lose a member. And none that JSON writes with a backslash: V8's
// JSON.parse can take such a name for another one that it met in an earlier text (nodejs/node#63785).
function soundName(name: string, place: string): string {
  if (name !== sound(name) || JSON.stringify(name) !== `"${name}"`)
    throw new TypeError(`audit ${place} has a member whose name cannot be kept`)
  return name
}

function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}
