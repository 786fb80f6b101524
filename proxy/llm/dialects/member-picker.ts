import { ByteCollector } from '../../../plugins/collect.ts'
import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
} from '../../../plugins/json-body/bytes.ts'

/** Bytes. A member's value that is longer is left out, and {@link TOO_LONG} stands for it. */
const MAX_VALUE = 65_536
/** Bytes. Further values are left out likewise: of those in arrays, and of all others. */
const MAX_KEPT = 131_072
/** The objects of an array, those with something found in them, that are kept apart; of further ones the last. */
const MAX_OBJECTS = 1_000
/** Bytes. A longer name, escapes included, is none that is looked for. */
const MAX_NAME = 128
const SPACE = 0x20
/** Bytes of a text, or of what begins and ends nothing, that are read one by one before they are searched. */
const NEAR = 32
/** Bytes that are searched at once for the end of what begins and ends nothing. */
const FAR = 4096

const OTHER = '-'.repeat(MAX_NAME + 1)

/** Stands for the value of a member that is there, and is longer than is kept. */
export const TOO_LONG = Symbol('a value that is longer than is kept')

/** Members to pick, by name: null for a whole one, else those of its object, or of its objects. */
export interface PickedMembers {
  readonly [name: string]: PickedMembers | null
}

interface PickFrame {
  readonly members: PickedMembers
  /** Their names by length and first byte: any other one, without escapes, is not even read. */
  readonly beginnings: ReadonlyMap<number, readonly string[]>
  readonly level: number
  /** True: within an array. */
  readonly isListed: boolean
  /** The finds in the objects of an array; null for an object. */
  readonly objects: PickedTexts[] | null
  /** The frame of each of these objects in turn. */
  readonly inner: PickFrame | null
  found: PickedTexts
}

type PickedTexts = Map<string, string | PickedTexts | readonly PickedTexts[] | typeof TOO_LONG>

/** Picks members out of a JSON object in pieces; the last of a name counts. Does NOT check the grammar. */
export class MemberPicker {
  readonly #root: PickFrame
  readonly #frames: PickFrame[] = []
  #top: PickFrame
  #depth = 0
  #quoted = false
  #escaped = false
  /** True: the text that is being read, or was read last, may hold escapes. */
  #slashed = false
  /** The name that is being read, or was read last, at the level of the top frame. */
  #name = ''
  #reading: 'nothing' | 'name' | 'value' = 'nothing'
  /** True: after the colon of a member. */
  #valued = false
  readonly #value = new ByteCollector(MAX_VALUE)
  readonly #kept = { listed: 0, other: 0 }
  /** True once nothing more counts: the object has ended, or there is none. */
  #over = false
  #isWhole = false

  constructor(members: PickedMembers) {
    this.#root = frameOf(members, 1, false, null)
    this.#top = this.#root
  }

  /** True once the object has come to its end, or if there is none to pick from. */
  get isWhole(): boolean {
    return this.#isWhole
  }

  add(bytes: Buffer): void {
    let from = 0
    for (let at = 0; at < bytes.length && !this.#over; at += 1) {
      if (this.#quoted) {
        at = this.#endOfText(bytes, at)
        if (at === bytes.length) break
        this.#quoted = false
        if (this.#reading === 'name') this.#keep(bytes, from, at, 'nothing')
        continue
      }
      if (this.#depth > this.#top.level || this.#isInArray) {
        at = this.#endOfNested(bytes, at)
        if (at === bytes.length) break
      }
      const byte = bytes[at] ?? 0
      if (byte <= SPACE || (this.#depth > 0 && IS_PLAIN[byte])) continue
      if (byte === QUOTE) {
        this.#quoted = true
        this.#slashed = false
        if (this.#depth === this.#top.level && !this.#valued) {
          this.#name = ''
          this.#reading = 'name'
          from = at + 1
        }
      } else {
        if (this.#reading === 'value' && this.#endsValue(byte)) this.#keep(bytes, from, at, 'nothing')
        if (this.#structure(byte)) from = at + 1
      }
    }
    if (this.#reading !== 'nothing') this.#keep(bytes, from, bytes.length, this.#reading)
  }

  object(): unknown {
    return objectOf(this.#root.found)
  }

  /** Returns the place of the quote that ends a text, or the length of the piece. */
  #endOfText(bytes: Buffer, start: number): number {
    const { length } = bytes
    let at = start + Number(this.#escaped)
    this.#escaped = false
    while (at < length) {
      // A search costs as much as reading some bytes one by one.
      const near = Math.min(at + NEAR, length)
      while (at < near && bytes[at] !== QUOTE && bytes[at] !== BACKSLASH) at += 1
      if (at < near) {
        if (bytes[at] === QUOTE) return at
        this.#slashed = true
        at += 2
      } else if (at < length) {
        this.#slashed = true
        const quote = bytes.indexOf(QUOTE, at)
        const end = quote < 0 ? length : quote
        let slashes = 0
        while (end - slashes > at && bytes[end - slashes - 1] === BACKSLASH) slashes += 1
        if (quote >= 0 && slashes % 2 === 0) return quote
        at = end + (slashes % 2)
      }
    }
    this.#escaped = at > length
    return length
  }

  /** True: between the objects of an array, of which nothing else counts. */
  get #isInArray(): boolean {
    return this.#top.objects !== null && this.#depth === this.#top.level
  }

  /**
   * Returns the place of the bracket that ends what is passed over, or that begins the next object of an array;
   * or the length of the piece.
   */
  #endOfNested(bytes: Buffer, start: number): number {
    const { length } = bytes
    const { level, objects } = this.#top
    const floor = objects ? level - 1 : level
    let depth = this.#depth
    let plain = 0
    let at = start
    for (; at < length; at += 1) {
      const nesting = NESTING[bytes[at] ?? 0] ?? 0
      if (nesting === 0) {
        plain += 1
        if (plain <= NEAR) continue
        // In a long list of numbers say.
        const end = endOfPlain(bytes, at)
        plain = end > at ? 0 : -FAR
        at = end
      } else if (nesting === TEXT) {
        at = this.#endOfText(bytes, at + 1)
        this.#quoted = at >= length
        plain = 0
      } else {
        const isObject = nesting === 1 && objects !== null && depth === level && bytes[at] === OPEN_BRACE
        if (isObject || depth + nesting === floor) break
        depth += nesting
      }
    }
    this.#depth = depth
    return Math.min(at, length)
  }

  #keep(bytes: Buffer, from: number, to: number, next: 'nothing' | 'name' | 'value'): void {
    if (this.#reading === 'name') {
      const isWhole = next === 'nothing' && this.#name === ''
      if (this.#name.length + to - from > MAX_NAME) this.#name = OTHER
      else if (isWhole && !this.#slashed) this.#name = this.#nameAt(bytes, from, to)
      else this.#name += bytes.toString('latin1', from, to)
    } else {
      const piece = bytes.subarray(from, to)
      // Whole in one piece: not even copied.
      if (next === 'nothing' && this.#value.length === 0 && piece.length <= MAX_VALUE) this.#found(piece)
      else {
        this.#value.add(piece)
        if (next === 'nothing') this.#found(this.#value.closed ? null : this.#value.bytes())
      }
    }
    this.#reading = next
  }

  /** `value`: null if it is longer than is kept. */
  #found(value: Buffer | null): void {
    const place = this.#top.isListed ? 'listed' : 'other'
    this.#kept[place] += value?.length ?? MAX_VALUE
    const isLong = value === null || this.#kept[place] > MAX_KEPT
    this.#top.found.set(this.#name, isLong ? TOO_LONG : value.toString())
  }

  /** Returns the name that stands there, if it is looked for: no text is made of another one. */
  #nameAt(bytes: Buffer, from: number, to: number): string {
    const names = this.#top.beginnings.get(beginningOf(to - from, bytes[from] ?? 0))
    if (!names) return OTHER
    for (const name of names) if (isTextAt(bytes, from, name)) return name
    return OTHER
  }

  #endsValue(byte: number): boolean {
    return this.#depth === this.#top.level && (byte === COMMA || byte === CLOSE_BRACE)
  }

  /** Follows a byte that is in no text. Returns true if a value that is kept begins after it. */
  #structure(byte: number): boolean {
    const { level } = this.#top
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.#open(byte)
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) this.#close()
    else if (this.#depth === 0) this.#over = true
    else if (this.#depth === level && byte === COMMA) this.#valued = false
    else if (this.#depth === level && byte === COLON && !this.#valued) return this.#begin()
    return false
  }

  #begin(): boolean {
    this.#valued = true
    if (this.#name.includes('\\')) this.#name = unescaped(this.#name)
    if (this.#member() !== null) return false
    this.#value.clear()
    this.#reading = 'value'
    return true
  }

  /** Undefined: of no name that is looked for. */
  #member(): PickedMembers | null | undefined {
    if (this.#name === OTHER) return undefined
    const { members } = this.#top
    return Object.hasOwn(members, this.#name) ? members[this.#name] : undefined
  }

  #open(byte: number): void {
    const { level, objects } = this.#top
    const isLevel = this.#depth === level
    this.#depth += 1
    if (this.#depth === 1) {
      this.#over = byte !== OPEN_BRACE
      this.#isWhole = this.#over
    } else if (!isLevel || this.#reading === 'value') return
    else if (objects) this.#openObject(byte, objects)
    else if (this.#valued) this.#openMember(byte)
  }

  #openObject(byte: number, objects: PickedTexts[]): void {
    const { inner } = this.#top
    if (byte !== OPEN_BRACE || !inner) return
    // One that had nothing in it is used again.
    if (inner.found.size > 0) {
      if (objects.length === MAX_OBJECTS) objects.pop()
      inner.found = new Map()
      objects.push(inner.found)
    } else if (objects.length === 0) objects.push(inner.found)
    this.#enter(inner)
  }

  #openMember(byte: number): void {
    const members = this.#member()
    if (!members) return
    const isArray = byte === OPEN_BRACKET
    const frame = frameOf(members, this.#depth, isArray || this.#top.isListed, isArray ? [] : null)
    this.#top.found.set(this.#name, frame.objects ?? frame.found)
    this.#enter(frame)
  }

  #enter(frame: PickFrame): void {
    this.#frames.push(this.#top)
    this.#top = frame
    this.#valued = false
  }

  #close(): void {
    this.#depth -= 1
    if (this.#depth === 0) {
      this.#over = true
      this.#isWhole = true
    } else if (this.#depth < this.#top.level) {
      this.#top = this.#frames.pop() ?? this.#root
      this.#valued = true
    }
  }
}

function isTextAt(bytes: Buffer, from: number, text: string): boolean {
  for (let at = 1; at < text.length; at += 1) if (bytes[from + at] !== text.charCodeAt(at)) return false
  return true
}

const beginningOf = (length: number, first: number): number => length * 256 + first

function frameOf(
  members: PickedMembers,
  level: number,
  isListed: boolean,
  objects: PickedTexts[] | null,
): PickFrame {
  const beginnings = Map.groupBy(Object.keys(members), (name) => beginningOf(name.length, name.charCodeAt(0)))
  const one = { members, beginnings, isListed, objects: null, inner: null }
  const inner = objects ? { ...one, level: level + 1, found: new Map() } : null
  return { ...one, level, objects, inner, found: new Map() }
}

/** Returns the last place before the end of a list of numbers; `start` if there is anything else in it. */
function endOfPlain(bytes: Buffer, start: number): number {
  const near = bytes.subarray(start, start + FAR)
  const bracket = near.indexOf(CLOSE_BRACKET)
  const list = bracket < 0 ? near : near.subarray(0, bracket)
  const isPlain = !BEGINNINGS.some((byte) => list.includes(byte))
  return isPlain ? start + Math.max(0, list.length - 1) : start
}

const BEGINNINGS = [QUOTE, OPEN_BRACE, OPEN_BRACKET, CLOSE_BRACE]

/** Bytes that begin and end nothing: those of numbers and words. */
const IS_PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  [OPEN_BRACE, OPEN_BRACKET, CLOSE_BRACE, CLOSE_BRACKET, QUOTE, COMMA, COLON].includes(byte) ? 0 : 1,
)

const TEXT = 2
/** The depth that a byte adds in what is passed over; {@link TEXT} for a quote. */
const NESTING = Int8Array.from({ length: 256 }, (_, byte) => {
  if (byte === OPEN_BRACE || byte === OPEN_BRACKET) return 1
  if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) return -1
  return byte === QUOTE ? TEXT : 0
})

const objectOf = (found: PickedTexts): unknown =>
  Object.fromEntries([...found].map(([name, value]) => [name, pickedValue(value)]))

function pickedValue(value: Parameters<PickedTexts['set']>[1]): unknown {
  if (typeof value === 'string') return parseText(value)
  if (value === TOO_LONG) return value
  return value instanceof Map ? objectOf(value) : value.map(objectOf)
}

function unescaped(name: string): string {
  const text = parseText(`"${name}"`)
  return typeof text === 'string' ? text : OTHER
}

function parseText(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Not our document to judge: the caller gets it as it is.
    return undefined
  }
}
