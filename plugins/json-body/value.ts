import type { UnknownRecord } from '../../db/support/json.ts'
import type { WorkSteps } from '../turns.ts'
import { CLOSE_BRACE, CLOSE_BRACKET, COMMA, ENDS_WORD, OPEN_BRACE, OPEN_BRACKET, QUOTE } from './bytes.ts'
import { isSpace, pieceEnd } from './plain-bytes.ts'

/** The place of a value in the text. Byte offsets, `end` exclusive, without the white space around it. */
export interface JsonSpan {
  readonly start: number
  readonly end: number
}

export interface MemberSpan extends JsonSpan {
  /** The most values that there may be in it, itself included. */
  readonly values: number
}

/** The members of an object, and whether a name in it, at whatever depth, is written with an escape. */
export class ScannedObject {
  readonly spans = new Map<string, MemberSpan>()
  escapedNames = false
}

export interface JsonScan {
  /** Made when it is read. An object of a long text makes each of its members when that is read. */
  readonly value: unknown
  readonly isObject: boolean
  /** The value of each member of the outermost object, by unescaped name. */
  readonly spans: ReadonlyMap<string, MemberSpan>
  /** The objects that were looked into, by their names in the outermost one. Places are those in their own text. */
  readonly objects: ReadonlyMap<string, Readonly<ScannedObject>>
  /**
   * The names in each object that is a member of the outermost one, as often as they stand there, and no more
   * than 1,001 of them. Empty if every name is judged.
   */
  readonly inner: ReadonlyMap<string, readonly string[]>
  /** True if any member's name, at whatever depth, is written with an escape: a reader may misread it. */
  readonly escapedNames: boolean
  /** The names that stand twice in the outermost object, if a scan leaves them: `value` has the last. */
  readonly repeated: ReadonlySet<string>
  /** True if a member, at whatever depth, has a name that was watched for. */
  readonly isWatched: boolean
  /**
   * The objects of `value`, as far as it was read, with more than 1,000 members: to list the names of one may
   * hold up the loop.
   */
  readonly wide: ReadonlySet<object>
}

/** Bytes. The value of a text that is no longer is made whole: its members would cost more one by one. */
const MAX_WHOLE = 4_096
/** A step ends after so many values; a string is read in pieces of so many bytes. */
const STEP_VALUES = 512
const PIECE = 262_144

type FoundInText = Omit<JsonScan, 'value' | 'isObject' | 'wide'> & {
  /** The places of the objects with more than 1,000 members. Null: V8 tells all that is to be known. */
  readonly wideAt: ReadonlySet<number> | null
}

/** Makes the value of a text when it is read: `bytes` is sound JSON. */
export class LazyScan implements JsonScan {
  readonly isObject: boolean
  readonly spans: JsonScan['spans']
  readonly objects: JsonScan['objects']
  readonly inner: JsonScan['inner']
  readonly escapedNames: boolean
  readonly repeated: JsonScan['repeated']
  readonly isWatched: boolean
  readonly wide = new Set<object>()
  readonly #bytes: Buffer
  readonly #rootAt: number
  readonly #wideAt: ReadonlySet<number> | null
  #isMade = false
  #value: unknown

  constructor(bytes: Buffer, rootAt: number, found: FoundInText) {
    const { spans, objects, inner, escapedNames, repeated, isWatched, wideAt } = found
    this.isObject = bytes[rootAt] === OPEN_BRACE
    this.#bytes = bytes
    this.#rootAt = rootAt
    this.spans = spans
    this.objects = objects
    this.inner = inner
    this.escapedNames = escapedNames
    this.repeated = repeated
    this.isWatched = isWatched
    this.#wideAt = wideAt
  }

  get value(): unknown {
    if (!this.#isMade) this.#value = this.#made()
    this.#isMade = true
    return this.#value
  }

  #made(): unknown {
    const { length } = this.#bytes
    const isWhole = !this.isObject || (length <= MAX_WHOLE && this.#wideAt === null)
    return isWhole ? this.#read({ start: this.#rootAt, end: length }) : this.#members()
  }

  /** Makes the outermost object, of which each member is read when it is asked for. */
  #members(): UnknownRecord {
    const object: UnknownRecord = {}
    for (const [name, span] of this.spans) {
      const get = (): unknown => {
        const value = this.#read(span)
        Object.defineProperty(object, name, { value, ...PLAIN_MEMBER })
        return value
      }
      Object.defineProperty(object, name, { get, enumerable: true, configurable: true })
    }
    return object
  }

  #read({ start, end }: JsonSpan): unknown {
    if (this.#wideAt === null) return JSON.parse(this.#bytes.toString('utf8', start, end))
    const building = buildValue(this.#bytes, start, this.#wideAt, this.wide)
    for (let step = building.next(); ; step = building.next()) if (step.done) return step.value
  }
}

const PLAIN_MEMBER = { writable: true, enumerable: true, configurable: true }

/**
 * Makes the value at `start` of sound JSON in steps, each name by itself: V8's JSON.parse may misread an escaped
 * one. Adds the objects at `wideAt` to `wide`.
 */
export function buildValue(
  bytes: Buffer,
  start: number,
  wideAt: ReadonlySet<number>,
  wide: Set<object>,
): WorkSteps<unknown> {
  return new ValueBuilder(bytes, start, wideAt, wide).value()
}

/** Stands for a value that takes steps. */
const LONG = Symbol('long')

class ValueBuilder {
  readonly #bytes: Buffer
  readonly #wideAt: ReadonlySet<number>
  readonly #wide: Set<object>
  #at: number
  #values = 0

  constructor(bytes: Buffer, at: number, wideAt: ReadonlySet<number>, wide: Set<object>) {
    this.#bytes = bytes
    this.#at = at
    this.#wideAt = wideAt
    this.#wide = wide
  }

  *value(): WorkSteps<unknown> {
    const short = this.#short()
    if (short !== LONG) return short
    const byte = this.#bytes[this.#at]
    if (byte === OPEN_BRACE) return yield* this.#object()
    return byte === OPEN_BRACKET ? yield* this.#list() : yield* this.#longString()
  }

  *#object(): WorkSteps<UnknownRecord> {
    const object: Record<string, unknown> = {}
    if (this.#wideAt.has(this.#at)) this.#wide.add(object)
    for (this.#pass(); this.#bytes[this.#at] !== CLOSE_BRACE; this.#passComma()) {
      const name = String(this.#short())
      this.#pass()
      const short = this.#short()
      const value = short === LONG ? yield* this.value() : short
      // Assigned, it would be the prototype.
      if (name === '__proto__') Object.defineProperty(object, name, { value, ...PLAIN_MEMBER })
      else object[name] = value
      if (this.#endsStep()) yield
    }
    this.#pass()
    return object
  }

  *#list(): WorkSteps<unknown[]> {
    const list: unknown[] = []
    for (this.#pass(); this.#bytes[this.#at] !== CLOSE_BRACKET; this.#passComma()) {
      const short = this.#short()
      list.push(short === LONG ? yield* this.value() : short)
      if (this.#endsStep()) yield
    }
    this.#pass()
    return list
  }

  *#longString(): WorkSteps<string> {
    let text = ''
    let start = this.#at + 1
    for (let isWhole = false; !isWhole; yield) {
      const end = pieceEnd(this.#bytes, start, PIECE)
      text += String(JSON.parse(`"${this.#bytes.toString('utf8', start, end)}"`))
      isWhole = this.#bytes[end] === QUOTE
      start = end
    }
    this.#at = start
    this.#pass()
    return text
  }

  /** Reads a word, a number or a string that is no longer than a piece; else LONG. */
  #short(): unknown {
    const bytes = this.#bytes
    const start = this.#at
    const byte = bytes[start] ?? 0
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) return LONG
    let end = start
    if (byte === QUOTE) {
      end = pieceEnd(bytes, start + 1, PIECE)
      if (bytes[end] !== QUOTE) return LONG
      end += 1
    } else while (end < bytes.length && ENDS_WORD[bytes[end] ?? 0] === 0) end += 1
    this.#at = passBlanks(bytes, end)
    return JSON.parse(bytes.toString('utf8', start, end))
  }

  #endsStep(): boolean {
    this.#values += 1
    return this.#values % STEP_VALUES === 0
  }

  /** Passes one byte, and the blanks after it. */
  #pass(): void {
    this.#at = passBlanks(this.#bytes, this.#at + 1)
  }

  #passComma(): void {
    if (this.#bytes[this.#at] === COMMA) this.#pass()
  }
}

function passBlanks(bytes: Buffer, start: number): number {
  let at = start
  while (isSpace(bytes[at])) at += 1
  return at
}
