import { isUtf8 } from 'node:buffer'
import { isObject, type Members } from '../../db/json.ts'
import { Refusal } from '../refusal.ts'

/** Deeper than any vendor's request, and far above the stack that a recursive reader behind us may spend. */
const MAX_DEPTH = 64
/** Object members in the whole body. */
const MAX_MEMBERS = 100_000
/** Commas in the whole body: bounds what JSON.parse builds. A batch of embedded tokens stays well below. */
const MAX_VALUES = 1_000_000
/**
 * Members down to here are judged by name, so their names must be written plainly: V8's JSON.parse can read
 * an escaped name as another one that it has seen before (nodejs/node#63785), and then judge what nobody
 * behind us will see.
 */
const JUDGED_DEPTH = 2
/** Strings shorter than this are read byte by byte: a native search costs more than it saves. */
const SHORT = 48

const QUOTE = 0x22
const COMMA = 0x2c
const COLON = 0x3a
const OPEN_BRACKET = 0x5b
const BACKSLASH = 0x5c
const CLOSE_BRACKET = 0x5d
const OPEN_BRACE = 0x7b
const CLOSE_BRACE = 0x7d

/** The place of a value in the body. Byte offsets, `end` exclusive, without the white space around it. */
export interface Span {
  readonly start: number
  readonly end: number
}

export interface Scan {
  /** The value of each member of the outermost object, by unescaped name. */
  readonly spans: ReadonlyMap<string, Span>
  /**
   * True where any member's name, at whatever depth, is written with an escape: the parser may have misread
   * it.
   */
  readonly escapedNames: boolean
}

/** An object that is open at this point of the scan, or an array, which has no keys. */
interface Container {
  /** Null until the first member: a list may hold a million empty objects. */
  keys: Set<string> | null
  /** True after `{` and, in an object, after a comma. */
  expectsKey: boolean
  readonly isObject: boolean
}

/**
 * Looks at the bytes of a JSON text once and refuses with `body_invalid` what two readers could take for two
 * different things, or what costs out of all proportion (docs/threats.md#t14, #threat-31): invalid UTF-8, a
 * byte order mark, nesting deeper than 64, more than 100,000 members or 1,000,000 commas, a name twice in one
 * object (escapes resolved), an escape in the name of an outer member. Linear in the length of the body,
 * whatever is in it. `judgedDepth`: down to where a member is an outer one. Default 2. Does NOT check the
 * grammar: JSON.parse does, afterwards. For a text that JSON.parse accepts the spans are exact.
 */
export function scanJson(bytes: Buffer, judgedDepth = JUDGED_DEPTH): Scan {
  if (!isUtf8(bytes)) throw invalid('is not valid UTF-8', 0)
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw invalid('starts with a byte order mark', 0)
  }
  return walk(bytes, judgedDepth)
}

/** `problem` completes the sentence "The body …". `offset` is in bytes. */
export function invalid(problem: string, offset: number): Refusal {
  return new Refusal('body_invalid', {
    message: `The body ${problem} (at byte ${offset}).`,
    detail: { offset },
  })
}

function walk(bytes: Buffer, judgedDepth: number): Scan {
  const spans = new Map<string, Span>()
  const open: Container[] = []
  let inside: Container | undefined
  let members = 0
  let commas = 0
  let escapedNames = false
  // Of the outermost object: the member that is being read, where its value starts, and where the last token
  // ended.
  let name: string | null = null
  let start = -1
  let end = 0

  const finishMember = () => {
    if (open.length !== 1 || name === null || start < 0) return
    spans.set(name, { start, end })
    name = null
    start = -1
  }

  let at = 0
  while (at < bytes.length) {
    const byte = bytes[at]
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      at += 1
      continue
    }
    if (byte === COMMA) {
      commas += 1
      if (commas > MAX_VALUES) throw invalid(`holds more than ${MAX_VALUES} values`, at)
      finishMember()
      if (inside?.isObject) inside.expectsKey = true
      at += 1
      continue
    }
    if (byte === COLON) {
      at += 1
      continue
    }
    if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      finishMember()
      open.pop()
      inside = open.at(-1)
      at += 1
      end = at
      continue
    }
    if (byte === QUOTE && inside?.expectsKey) {
      const after = stringEnd(bytes, at)
      const key = memberName(bytes, at, after)
      if (bytes.subarray(at, after).includes(BACKSLASH)) {
        if (open.length <= judgedDepth) {
          throw invalid('escapes a character in the name of an outer member', at)
        }
        escapedNames = true
      }
      members += 1
      if (members > MAX_MEMBERS) throw invalid(`holds more than ${MAX_MEMBERS} members`, at)
      inside.keys ??= new Set()
      if (inside.keys.has(key)) throw invalid('names a member twice in one object', at)
      inside.keys.add(key)
      inside.expectsKey = false
      if (open.length === 1) name = key
      at = after
      continue
    }
    if (open.length === 1 && name !== null && start < 0) start = at
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      if (open.length === MAX_DEPTH) throw invalid(`is nested deeper than ${MAX_DEPTH}`, at)
      const isObject = byte === OPEN_BRACE
      inside = { keys: null, expectsKey: isObject, isObject }
      open.push(inside)
      at += 1
    } else {
      at = byte === QUOTE ? stringEnd(bytes, at) : at + 1
      end = at
    }
  }
  return { spans, escapedNames }
}

/** The offset after the closing quote of the string that opens at `quote`. */
function stringEnd(bytes: Buffer, quote: number): number {
  let at = quote + 1
  while (at < bytes.length) {
    for (const stop = at + SHORT; at < stop && at < bytes.length; at += 1) {
      if (bytes[at] === QUOTE) return at + 1
      if (bytes[at] === BACKSLASH) at += 1
    }
    const found = bytes.indexOf(QUOTE, at)
    if (found < 0) break
    // Backslashes are counted no further back than where the search began, so each is counted once.
    let slashes = 0
    while (found - slashes > at && bytes[found - slashes - 1] === BACKSLASH) slashes += 1
    at = found + 1
    if (slashes % 2 === 0) return at
  }
  throw invalid('ends inside a string', quote)
}

function memberName(bytes: Buffer, start: number, end: number): string {
  const escaped = bytes.subarray(start + 1, end - 1).includes(BACKSLASH)
  if (!escaped) return bytes.toString('utf8', start + 1, end - 1)
  try {
    // A JSON string literal parses to a string and to nothing else.
    return JSON.parse(bytes.toString('utf8', start, end)) as string
  } catch {
    throw invalid('has a member name that is not a JSON string', start)
  }
}

/** Reads the JSON object that the bytes are, strictly; null where they are anything else. */
export function parseJsonObject(bytes: Buffer): Members | null {
  try {
    const text = bytes.toString()
    const value: unknown = JSON.parse(text)
    // What is written back to the same bytes has no member twice and no name that reads as another: nothing
    // to look for.
    if (!isUtf8(bytes) || JSON.stringify(value) !== text) scanJson(bytes)
    return isObject(value) ? value : null
  } catch {
    // Whatever is wrong with it: it is not one.
    return null
  }
}
