import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { CLOSE_BRACE, OPEN_BRACE } from '../../../plugins/json-body/bytes.ts'
import { type JsonScan, type JsonSpan, scanJson } from '../../../plugins/json-body/scan.ts'
import { Refusal } from '../../../plugins/refusal.ts'

/** JSON-RPC 2.0 §5.1. */
export const METHOD_NOT_FOUND = -32601
/** Error codes that only the modern revision has (MCP 2026-07-28, error codes). */
export const HEADER_MISMATCH = -32020
export const MISSING_CLIENT_CAPABILITY = -32021
export const UNSUPPORTED_VERSION = -32022

export interface JsonText {
  readonly bytes: Buffer
  readonly value: UnknownRecord
  readonly spans: ReadonlyMap<string, JsonSpan>
  readonly escapedNames: boolean
}

/** Reads the bytes of one JSON object strictly. Throws a Refusal or a SyntaxError for anything else. */
export function readObject(bytes: Buffer): JsonText {
  const { value, spans, escapedNames } = scanJson(bytes, 1)
  if (!isObject(value)) throw new SyntaxError('a JSON object was expected')
  return { bytes, value, spans, escapedNames }
}

/** Reads a member that is an object; null: it is none. */
export function memberObject(
  { bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>,
  name: string,
): JsonText | null {
  const { start, end } = spans.get(name) ?? NOWHERE
  return bytes[start] === OPEN_BRACE && end > start ? readObject(bytes.subarray(start, end)) : null
}

/** Takes a member from a text that was looked into as it was scanned. `value`: its own; null: it is no object. */
export function scannedMember(
  { bytes, spans, objects }: ScannedText,
  name: string,
  value: unknown,
): JsonText | null {
  const { start, end } = spans.get(name) ?? NOWHERE
  const object = objects.get(name)
  if (!object || !isObject(value)) return null
  return { bytes: bytes.subarray(start, end), value, spans: object.spans, escapedNames: object.escapedNames }
}

interface ScannedText extends Pick<JsonScan, 'objects'>, Pick<JsonText, 'bytes' | 'spans'> {}

const NOWHERE: JsonSpan = { start: 0, end: 0 }

/** Changes to an object: JSON text for a member, in place of its own or added; null leaves the member out. */
export type MemberEdits = Readonly<Record<string, string | null>>

/** Writes an object with these edits, every other member as it was written and in its place. */
export function applyEdits({ bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>, edits: MemberEdits): string {
  const members: string[] = []
  for (const [name, { start, end }] of spans) {
    const edit = Object.hasOwn(edits, name) ? edits[name] : undefined
    if (edit === null) continue
    members.push(`${JSON.stringify(name)}:${edit ?? bytes.toString('utf8', start, end)}`)
  }
  for (const [name, text] of Object.entries(edits)) {
    if (text !== null && !spans.has(name)) members.push(`${JSON.stringify(name)}:${text}`)
  }
  return `{${members.join(',')}}`
}

export function memberText({ bytes, spans }: Pick<JsonText, 'bytes' | 'spans'>, name: string): string | null {
  const span = spans.get(name)
  return span ? bytes.toString('utf8', span.start, span.end) : null
}

/** Tells whether each of these names is a known one, letter for letter. */
export function areAllKnown(names: Iterable<string>, known: ReadonlySet<string>): boolean {
  for (const name of names) if (!known.has(name)) return false
  return true
}

/** Writes a request. `params` is the JSON text of an object, or null for none. */
export const requestMessage = (id: number, method: string, params: string | null): string =>
  `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)}${paramsMember(params)}}`

export const notificationMessage = (method: string, params: string | null): string =>
  `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${paramsMember(params)}}`

const paramsMember = (params: string | null): string => (params === null ? '' : `,"params":${params}`)

/** Writes a response, all of it JSON text. `id`: null if the request's could not be read. */
export const responseMessage = (id: string | null, member: 'result' | 'error', text: string): string =>
  `{"jsonrpc":"2.0","id":${id ?? 'null'},"${member}":${text}}`

export const resultMessage = (id: string, result: string): string => responseMessage(id, 'result', result)

export const errorMessage = (id: string | null, error: string): string => responseMessage(id, 'error', error)

export const responseBytes = (id: string, member: 'result' | 'error', value: Buffer): Buffer =>
  Buffer.concat([Buffer.from(`{"jsonrpc":"2.0","id":${id},"${member}":`), value, END])

const END = Buffer.from('}')

/**
 * Writes a response around a value of the message that it came in, over what is around it there, if it fits:
 * the message is no more what it was.
 */
export function responseAround(
  { bytes }: Pick<JsonText, 'bytes'>,
  value: Buffer,
  id: string,
  member: 'result' | 'error',
): Buffer {
  const head = Buffer.from(`{"jsonrpc":"2.0","id":${id},"${member}":`)
  const start = value.byteOffset - bytes.byteOffset - head.length
  const end = start + head.length + value.length
  if (value.buffer !== bytes.buffer || start < 0 || end >= bytes.length)
    return responseBytes(id, member, value)
  head.copy(bytes, start)
  bytes[end] = CLOSE_BRACE
  return bytes.subarray(start, end + 1)
}

export const eventOf = (message: string): string =>
  `event: message\n${message
    .split(/\r\n|\r|\n/)
    .map((line) => `data: ${line}\n`)
    .join('')}\n`

export function eventParts(message: Buffer): readonly Buffer[] {
  if (message.includes(LF) || message.includes(CR)) return [Buffer.from(eventOf(message.toString()))]
  return [EVENT_START, message, EVENT_END]
}

const LF = 0x0a
const CR = 0x0d
const EVENT_START = Buffer.from('event: message\ndata: ')
const EVENT_END = Buffer.from('\n\n')

export interface JsonExtent {
  /** Levels of objects and arrays. 0: neither. */
  readonly depth: number
  readonly values: number
  /** True if an object in it has a member `__proto__`: to some readers that is not a member. */
  readonly proto: boolean
}

/** Measures a value, level by level. Stops beyond `most` values, with the size so far. */
export function measureJson(value: unknown, most: number): JsonExtent {
  let level: readonly unknown[] = [value]
  let depth = 0
  let values = 0
  let proto = false
  while (level.length > 0 && values <= most) {
    const below: unknown[] = []
    let isDeeper = false
    for (const one of level) {
      values += 1
      if (values > most) break
      if (typeof one !== 'object' || one === null) continue
      isDeeper = true
      proto ||= Object.hasOwn(one, '__proto__')
      for (const inner of Object.values(one)) below.push(inner)
    }
    if (isDeeper) depth += 1
    level = below
  }
  return { depth, values, proto }
}

/** Values in one set of arguments (docs/protocol.md#mcp-order). */
const MAX_VALUES = 250_000

/**
 * Writes the arguments of a call as RFC 8785 does. Refuses with `mcp_params_invalid` values that it is not
 * defined for (RFC 7493): text that is not well-formed, and integers that a reader of doubles takes for
 * others; also more than 250,000 values.
 */
export function canonicalizeArguments(args: UnknownRecord): string {
  let values = 0
  const text = (value: unknown): string => {
    values += 1
    if (values > MAX_VALUES) throw paramsInvalid(`arguments hold more than ${MAX_VALUES} values.`)
    if (typeof value === 'string') return quoteString(value)
    if (typeof value === 'number') return numeral(value)
    if (Array.isArray(value)) return `[${joinItems(value, text)}]`
    if (!isObject(value)) return String(value)
    return `{${joinItems(sortNames(Object.keys(value)), (name) => `${quoteString(name)}:${text(value[name])}`)}}`
  }
  return text(args)
}

/** At most these are sorted by insertion. */
const FEW_NAMES = 16

/** Sorts names in place by their UTF-16 code units: `sort` copies them twice. */
function sortNames(names: string[]): readonly string[] {
  if (names.length > FEW_NAMES) return names.sort()
  for (const [from, name] of names.entries()) {
    let at = from
    for (let before = names[at - 1]; before !== undefined && before > name; before = names[at - 1]) {
      names[at] = before
      at -= 1
    }
    names[at] = name
  }
  return names
}

function joinItems<Item>(items: readonly Item[], text: (item: Item) => string): string {
  let all = ''
  for (const item of items) all += all === '' ? text(item) : `,${text(item)}`
  return all
}

function quoteString(text: string): string {
  if (text.isWellFormed()) return JSON.stringify(text)
  // No two readers agree on a lone surrogate.
  throw paramsInvalid('arguments hold text that is not well-formed Unicode.')
}

function numeral(value: number): string {
  if (!Number.isFinite(value)) throw paramsInvalid('arguments hold a number beyond all bounds.')
  if (!Number.isInteger(value) || Number.isSafeInteger(value)) return JSON.stringify(value)
  throw paramsInvalid('arguments hold an integer beyond ±(2^53-1): send it as a string.')
}

/** Makes the refusal of parameters that are not as their method wants them. */
export const paramsInvalid = (message: string): Refusal => new Refusal('mcp_params_invalid', { message })
