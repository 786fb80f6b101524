/**
 * Steps over canonical JSON (RFC 8785) in the bytes of valid UTF-8, many times faster than parsing it and
 * writing it again. Takes only what is canonical beyond doubt: a text it refuses may still be canonical, and
 * a slower check must look. Every step returns whether the thing it is named after stood at `at`, and then is
 * after it. `bytes` must end with anything that is inside no text: a line feed, or the brace of an object.
 */
export class CanonicalBytes {
  bytes: Uint8Array = new Uint8Array(0)
  at = 0
  /** The kinds of names that the last object has, at any depth ({@link MARKS}). */
  marks = 0
  /** The start and end of the values of two of its own members, alike if it has none. */
  readonly authority: [from: number, to: number] = [0, 0]
  readonly path: [from: number, to: number] = [0, 0]
  #depth = 0

  /** Steps over bytes that must stand there. */
  literal(expected: Uint8Array): boolean {
    const { bytes, at } = this
    const { length } = expected
    for (let index = 0; index < length; index += 1) if (bytes[at + index] !== expected[index]) return false
    this.at = at + length
    return true
  }

  /** Steps over a text that holds nothing which JSON writes with a backslash. */
  text(): boolean {
    const { bytes } = this
    let { at } = this
    if (bytes[at] !== QUOTE) return false
    for (;;) {
      at += 1
      const byte = bytes[at] ?? 0
      if (byte === QUOTE) break
      if (byte < SPACE || byte === BACKSLASH) return false
    }
    this.at = at + 1
    return true
  }

  /** Steps over an integer of at most 15 digits. */
  integer(): boolean {
    const { bytes } = this
    const isNegative = bytes[this.at] === MINUS
    const from = isNegative ? this.at + 1 : this.at
    let at = from
    while (isDigit(bytes[at])) at += 1
    const digits = at - from
    if (digits === 0 || digits > MAX_SAFE_DIGITS) return false
    if (bytes[from] === ZERO && (digits > 1 || isNegative)) return false
    this.at = at
    return true
  }

  /** Steps over the object of a detail, and notes what judging it needs. */
  detail(): boolean {
    this.marks = 0
    this.authority.fill(0)
    this.path.fill(0)
    return this.object()
  }

  /** Steps over an object whose members are in order, down to the last. */
  object(): boolean {
    const { bytes } = this
    if (bytes[this.at] !== OPEN_BRACE || this.#depth === MAX_DETAIL_DEPTH) return false
    this.at += 1
    if (bytes[this.at] === CLOSE_BRACE) return this.#over()
    this.#depth += 1
    let [lastFrom, lastTo] = [0, 0]
    for (;;) {
      const from = this.at
      if (!this.text()) break
      const to = this.at
      if (lastTo > 0 && !this.#isAfter(from, to, lastFrom, lastTo)) break
      if (bytes[to] !== COLON) break
      this.at = to + 1
      if (!this.#value()) break
      this.#note(from, to)
      ;[lastFrom, lastTo] = [from, to]
      if (bytes[this.at] === COMMA) this.at += 1
      else {
        this.#depth -= 1
        return bytes[this.at] === CLOSE_BRACE && this.#over()
      }
    }
    this.#depth -= 1
    return false
  }

  /** Notes a name, quotation marks included, whose value ends here. */
  #note(from: number, to: number): void {
    const { bytes } = this
    const names = NOTED[to - from - 2]
    if (names === undefined) return
    for (const { name, mark } of names) {
      let at = 0
      while (at < name.length && bytes[from + 1 + at] === name[at]) at += 1
      if (at < name.length) continue
      this.marks |= mark
      if (mark !== 0 || this.#depth > 1) return
      const place = name.length === PATH_LENGTH ? this.path : this.authority
      place[0] = to + 1
      place[1] = this.at
    }
  }

  #list(): boolean {
    const { bytes } = this
    if (this.#depth === MAX_DETAIL_DEPTH) return false
    this.at += 1
    if (bytes[this.at] === CLOSE_BRACKET) return this.#over()
    this.#depth += 1
    let isWhole = this.#value()
    while (isWhole && bytes[this.at] === COMMA) {
      this.at += 1
      isWhole = this.#value()
    }
    this.#depth -= 1
    return isWhole && bytes[this.at] === CLOSE_BRACKET && this.#over()
  }

  #value(): boolean {
    const first = this.bytes[this.at]
    if (first === QUOTE) return this.text()
    if (first === OPEN_BRACE) return this.object()
    if (first === OPEN_BRACKET) return this.#list()
    return this.integer() || this.literal(FALSE) || this.literal(TRUE) || this.literal(NULL_BYTES)
  }

  #over(): true {
    this.at += 1
    return true
  }

  /**
   * Compares two names, quotation marks included. Says no to names that are not ASCII: UTF-8 has another
   * order.
   */
  #isAfter(from: number, to: number, lastFrom: number, lastTo: number): boolean {
    const { bytes } = this
    for (let [one, other] = [from + 1, lastFrom + 1]; ; one += 1, other += 1) {
      const [byte = 0, last = 0] = [bytes[one], bytes[other]]
      if (byte > ASCII || last > ASCII) return false
      // The closing mark ends a name, wherever it stands in the order of characters.
      if (other === lastTo - 1) return one < to - 1
      if (one === to - 1) return false
      if (byte !== last) return byte > last
    }
  }
}

/** Kinds of names in a detail: a cost, limits, and what lets an allowed decision rest on more than its authority. */
export const MARKS = { cost: 1, limits: 2, more: 4 } as const

const PATH_LENGTH = 4

/** The names that are noted, by their length. Those without a mark are noted by their place. */
const NOTED: readonly (readonly { readonly name: Buffer; readonly mark: number }[] | undefined)[] = byLength([
  ['path', 0],
  ['authority', 0],
  ['cost', MARKS.cost],
  ['limits', MARKS.limits],
  ...['reason', 'refused_by', 'required_capability', 'stop', 'summarised', 'approval', 'grant'].map(
    (name) => [name, MARKS.more] as const,
  ),
])

function byLength(names: readonly (readonly [name: string, mark: number])[]) {
  const lengths = Math.max(...names.map(([name]) => name.length)) + 1
  return Array.from({ length: lengths }, (_, length) => {
    const found = names.filter(([name]) => name.length === length)
    return found.length === 0 ? undefined : found.map(([name, mark]) => ({ name: Buffer.from(name), mark }))
  })
}

export const NULL_BYTES = Buffer.from('null')
const [TRUE, FALSE] = [Buffer.from('true'), Buffer.from('false')]

const [SPACE, QUOTE, BACKSLASH, MINUS, COMMA, COLON] = [0x20, 0x22, 0x5c, 0x2d, 0x2c, 0x3a]
const [OPEN_BRACE, CLOSE_BRACE, OPEN_BRACKET, CLOSE_BRACKET] = [0x7b, 0x7d, 0x5b, 0x5d]
const [ZERO, NINE, ASCII] = [0x30, 0x39, 0x7f]

/** The levels of a detail (docs/ledger.md#leaf). */
const MAX_DETAIL_DEPTH = 16
/** So many digits are never more than 2^53. */
const MAX_SAFE_DIGITS = 15

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= ZERO && byte <= NINE
