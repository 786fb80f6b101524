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

/** Bytes. A member's value that is longer is left out. */
const MAX_VALUE = 16_384
/** Bytes. A longer name is none that is looked for. */
const MAX_NAME = 64
const TOO_LONG = '-'.repeat(MAX_NAME + 1)
const SPACE = 0x20
/** The outermost object, and a member of it that is searched. */
const [OUTER, INNER] = [1, 2]

/**
 * Picks members out of a JSON object that comes in pieces, however long it is, and keeps nothing else: the
 * outermost ones of some names, and those of the same names in outermost members that hold some. If one
 * stands twice the last counts. Looks at each byte once. Does NOT check the grammar, nor read escapes in
 * names.
 */
export class MemberPicker {
  readonly #names: ReadonlySet<string>
  readonly #holders: ReadonlySet<string>
  /** The lengths of both: a name of another one is not even read. */
  readonly #lengths: ReadonlySet<number>
  /** JSON text, by path. */
  readonly #found = new Map<string, string>()
  #depth = 0
  /** The depth whose members are looked at: INNER within a holder. */
  #level = OUTER
  #holder = ''
  #quoted = false
  #escaped = false
  /** The name that is being read, or was read last, at that depth. */
  #name = ''
  #reading: 'nothing' | 'name' | 'value' = 'nothing'
  /** True: after the colon of a member. */
  #valued = false
  readonly #value = new ByteCollector(MAX_VALUE)
  /** True once nothing more counts: the object has ended, or there is none. */
  #over = false

  constructor(names: readonly string[], holders: readonly string[]) {
    this.#names = new Set(names)
    this.#holders = new Set(holders)
    this.#lengths = new Set([...names, ...holders].map(({ length }) => length))
  }

  /** Takes the next piece. */
  add(bytes: Buffer): void {
    let from = 0
    for (let at = 0; at < bytes.length && !this.#over; at += 1) {
      const byte = bytes[at] ?? 0
      if (this.#quoted) {
        if (this.#escaped) this.#escaped = false
        else if (byte === BACKSLASH) this.#escaped = true
        else if (byte === QUOTE) {
          this.#quoted = false
          if (this.#reading === 'name') this.#keep(bytes, from, at, 'nothing')
        }
      } else if (byte <= SPACE || (this.#depth > 0 && IS_PLAIN[byte])) continue
      else if (byte === QUOTE) {
        this.#quoted = true
        if (this.#depth === this.#level && !this.#valued) {
          this.#name = ''
          this.#reading = 'name'
          from = at + 1
        }
      } else if (this.#depth <= this.#level || isBracket(byte)) {
        if (this.#reading === 'value' && this.#endsValue(byte)) this.#keep(bytes, from, at, 'nothing')
        if (this.#structure(byte)) from = at + 1
      }
    }
    if (this.#reading !== 'nothing') this.#keep(bytes, from, bytes.length, this.#reading)
  }

  /** Returns an object with the members that were found. */
  object(): unknown {
    const outer = [...this.#found].filter(([path]) => !path.includes('.'))
    const inner = [...this.#holders].map((holder) => {
      const own = [...this.#found].filter(([path]) => path.startsWith(`${holder}.`))
      const members = own.map(([path, text]) => [path.slice(holder.length + 1), parseMember(text)])
      return [holder, Object.fromEntries(members)]
    })
    return Object.fromEntries([...outer.map(([name, text]) => [name, parseMember(text)]), ...inner])
  }

  #keep(bytes: Buffer, from: number, to: number, next: 'nothing' | 'name' | 'value'): void {
    if (this.#reading === 'name') {
      const isWhole = next === 'nothing' && this.#name === ''
      const isLong = this.#name.length > MAX_NAME || to - from > MAX_NAME
      const isOther = isLong || (isWhole && !this.#lengths.has(to - from))
      this.#name = isOther ? TOO_LONG : this.#name + bytes.toString('latin1', from, to)
    } else {
      this.#value.add(bytes.subarray(from, to))
      if (next === 'nothing' && !this.#value.closed)
        this.#found.set(this.#path(), this.#value.bytes().toString())
    }
    this.#reading = next
  }

  #endsValue(byte: number): boolean {
    return this.#depth === this.#level && (byte === COMMA || byte === CLOSE_BRACE)
  }

  /** Follows a byte that is in no text. Returns true if a value that is kept begins after it. */
  #structure(byte: number): boolean {
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) this.#open(byte)
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) this.#close()
    else if (this.#depth === 0) this.#over = true
    else if (this.#depth === this.#level && byte === COMMA) this.#valued = false
    else if (this.#depth === this.#level && byte === COLON && !this.#valued) return this.#begin()
    return false
  }

  #begin(): boolean {
    this.#valued = true
    if (!this.#names.has(this.#name)) return false
    this.#value.clear()
    this.#reading = 'value'
    return true
  }

  #open(byte: number): void {
    if (this.#depth === 0 && byte !== OPEN_BRACE) this.#over = true
    const name = this.#depth === OUTER && this.#level === OUTER ? this.#name : ''
    this.#depth += 1
    if (byte !== OPEN_BRACE || !this.#valued || !this.#holders.has(name)) return
    this.#holder = name
    this.#level = INNER
    this.#valued = false
  }

  #close(): void {
    this.#depth -= 1
    if (this.#depth === 0) this.#over = true
    if (this.#depth !== OUTER || this.#level !== INNER) return
    this.#level = OUTER
    this.#valued = true
  }

  #path(): string {
    return this.#level === INNER ? `${this.#holder}.${this.#name}` : this.#name
  }
}

/** Bytes that begin and end nothing: those of numbers and words. */
const IS_PLAIN = Uint8Array.from({ length: 256 }, (_, byte) =>
  [OPEN_BRACE, OPEN_BRACKET, CLOSE_BRACE, CLOSE_BRACKET, QUOTE, COMMA, COLON].includes(byte) ? 0 : 1,
)

const isBracket = (byte: number): boolean =>
  byte === OPEN_BRACE || byte === OPEN_BRACKET || byte === CLOSE_BRACE || byte === CLOSE_BRACKET

function parseMember(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Not our document to judge: the caller gets it as it is.
    return undefined
  }
}
