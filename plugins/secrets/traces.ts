import { BYTES_AT_ONCE, type WorkSteps } from '../turns.ts'
import {
  MAX_ESCAPE,
  mayHoldEscapes,
  removeBlanks,
  removeQuotedBlanks,
  resolveEscapes,
  type TextRewriter,
} from './escapes.ts'
import { TraceSearch } from './trace-search.ts'

/**
 * The texts by which a secret is found: itself, its bytes in hexadecimal digits, and its base64 at each of
 * the three offsets that it may have in a longer text. Latin-1. Can be handed to a thread.
 */
export type SecretTraces = readonly string[]

/** A shorter secret would be found in texts that do not quote it. Characters. */
export const MIN_TRACED_CHARACTERS = 8

/** The levels of escapes that are resolved: JSON as a text in JSON, and so on. */
const MAX_LEVELS = 4

/** Makes the traces of secrets. The empty one has none; one shorter than 8 characters is looked for as it is. */
export function secretTraces(secrets: Iterable<string>): SecretTraces {
  const traces = new Set<string>()
  for (const secret of secrets) {
    if (secret === '') continue
    // The bytes of a header, and of a text.
    for (const bytes of [Buffer.from(secret, 'latin1'), Buffer.from(secret)]) {
      traces.add(bytes.toString('latin1'))
      if (secret.length < MIN_TRACED_CHARACTERS) continue
      for (const encoded of [...base64Of(bytes), ...hexadecimalOf(bytes)]) traces.add(encoded)
    }
  }
  return [...traces]
}

/** Returns base64 within a longer text, both alphabets: the characters that bytes around do not change. */
function base64Of(bytes: Buffer): readonly string[] {
  return [0, 1, 2].flatMap((offset) => {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes])
    const [first, end] = [Math.ceil((offset * 8) / 6), Math.floor((padded.length * 8) / 6)]
    return [padded.toString('base64'), padded.toString('base64url')].map((text) => text.slice(first, end))
  })
}

function hexadecimalOf(bytes: Buffer): readonly string[] {
  const digits = bytes.toString('hex')
  return [digits, digits.toUpperCase()]
}

/**
 * Tells whether a text quotes one of the secrets: as it is, with its escapes resolved, up to four of them one
 * in another, or broken by blanks into lines or groups. Linear in its length. Does NOT find a secret in parts
 * of several texts, reversed, or in another code.
 */
export function quotesSecret(traces: SecretTraces, text: Buffer): boolean {
  if (traces.length === 0) return false
  const reading = resolveUnquoted(traces, text)
  return reading === null || quotesInLines(traces, reading)
}

/** Does what {@link quotesSecret} does for less of its time, but for a secret that is broken into lines. */
export const quotesUnbroken = (traces: SecretTraces, text: Buffer): boolean =>
  resolveUnquoted(traces, text) === null

/** Returns a text with all of its escapes resolved; null if it quotes a secret on the way. */
function resolveUnquoted(traces: SecretTraces, text: Buffer): Buffer | null {
  let reading = text
  for (let level = 0; ; level += 1) {
    if (hasTrace(traces, reading)) return null
    if (level === MAX_LEVELS || !mayHoldEscapes(reading)) return reading
    const next = rewritten(reading, resolveEscapes)
    if (next.length === reading.length) return reading
    reading = next
  }
}

const quotesInLines = (traces: SecretTraces, reading: Buffer): boolean =>
  hasTrace(traces, rewritten(reading, removeBlanks)) ||
  (reading.includes(EQUALS) && hasTrace(traces, rewritten(reading, removeQuotedBlanks)))

const EQUALS = 0x3d

const hasTrace = (traces: SecretTraces, bytes: Buffer): boolean =>
  traces.length > 0 && TraceSearch.of(traces).isIn(bytes)

function rewritten(text: Buffer, rewrite: TextRewriter): Buffer {
  const into = Buffer.allocUnsafe(text.length)
  const place = { at: 0, length: 0 }
  rewrite(text, into, place, text.length)
  return into.subarray(0, place.length)
}

/** Does what {@link quotesSecret} does, of a long text, in steps far below a slice, and keeps none of it. */
export function* quotesSecretSteps(traces: SecretTraces, text: Buffer): WorkSteps<boolean> {
  if (traces.length === 0) return false
  const search = TraceSearch.of(traces)
  const levels = Array.from({ length: MAX_LEVELS + 1 }, (_, level) =>
    level === 0 ? new ReadText(search, null) : new ReadText(search, resolveEscapes, mayHoldEscapes),
  )
  const joined = new ReadText(search, removeBlanks)
  const quoted = new ReadText(search, removeQuotedBlanks, (piece) => piece.includes(EQUALS))
  for (let at = 0; at < text.length; at += BYTES_AT_ONCE) {
    const isLast = at + BYTES_AT_ONCE >= text.length
    let reading = text.subarray(at, at + BYTES_AT_ONCE)
    let before: ReadText | null = null
    for (const level of levels) {
      reading = level.read(reading, isLast)
      if (level.finds(reading, before)) return true
      if (level.isOther) before = level
    }
    if (joined.finds(joined.read(reading, isLast), null)) return true
    if (quoted.finds(quoted.read(reading, isLast), joined)) return true
    yield
  }
  return false
}

/** A text that comes in pieces, in another form, in which traces are looked for. */
class ReadText {
  readonly #search: TraceSearch
  readonly #rewrite: TextRewriter | null
  readonly #mayChange: (piece: Buffer) => boolean
  /** The end that is not rewritten yet: an escape may go on in the next piece. */
  #rest: Buffer = NOTHING
  /** The end of what was searched, and what it was before the last piece. */
  #tail: Buffer = NOTHING
  #tailBefore: Buffer = NOTHING
  #isSearched = false
  /** True: it is other than the text that it is made of. Until then it is not searched. */
  isOther: boolean

  constructor(search: TraceSearch, rewrite: TextRewriter | null, mayChange = (_piece: Buffer) => true) {
    this.#search = search
    this.#rewrite = rewrite
    this.#mayChange = mayChange
    this.isOther = rewrite === null
  }

  /** Returns the next piece in its form. */
  read(piece: Buffer, isLast: boolean): Buffer {
    if (!this.#rewrite) return piece
    this.isOther ||= this.#mayChange(piece)
    if (!this.isOther) return piece
    const text = this.#rest.length === 0 ? piece : Buffer.concat([this.#rest, piece])
    const into = Buffer.allocUnsafe(text.length)
    const place = { at: 0, length: 0 }
    const held = isLast || this.#rewrite === removeBlanks ? 0 : MAX_ESCAPE
    this.#rewrite(text, into, place, text.length - held)
    this.#rest = text.subarray(place.at)
    return into.subarray(0, place.length)
  }

  /** Looks for traces in the next piece. `before`: the text that this one was until it became another. */
  finds(piece: Buffer, before: ReadText | null): boolean {
    if (!this.isOther) return false
    if (!this.#isSearched && before) this.#tail = before.#tailBefore
    this.#isSearched = true
    this.#tailBefore = this.#tail
    const { overlap } = this.#search
    const seam = Buffer.concat([this.#tail, piece.subarray(0, overlap)])
    if (this.#search.isIn(seam) || this.#search.isIn(piece)) return true
    const end = piece.length < overlap ? seam : piece
    this.#tail = Buffer.from(end.subarray(Math.max(0, end.length - overlap)))
    return false
  }
}

/**
 * Tells whether bytes are part of a text in UTF-8, or in a code that has its letters where ASCII has them.
 * `begins`: they are the beginning, where one that is compressed has bytes that stand for no character.
 */
export function isReadableText(bytes: Buffer, begins: boolean): boolean {
  if (bytes.includes(0)) return false
  if (!begins) return true
  const end = Math.min(bytes.length, LOOKED_AT)
  for (let at = 0; at < end; at += 1) {
    const byte = bytes[at] ?? SPACE
    if (byte < SPACE && byte !== TAB && byte !== LINE_FEED && byte !== RETURN) return false
  }
  return true
}

/** Bytes. */
const LOOKED_AT = 128
const [TAB, LINE_FEED, RETURN] = [0x09, 0x0a, 0x0d]

/** The bytes that a character of a secret may take, escaped in a text of a text of a text: `\\\\u003d`. */
const ESCAPED_LENGTH = 9
/** Bytes. No more is held back, however long a secret is. */
const MAX_HELD = 16_384
const SPACE = 0x20
const NOTHING = Buffer.alloc(0)

/** The bytes that an escaped secret may take. */
const reachOf = (traces: SecretTraces): number =>
  Math.min(ESCAPED_LENGTH * Math.max(0, ...traces.map(({ length }) => length)), MAX_HELD)

/**
 * Passes a text on in the pieces that it comes in, as long as it can be read ({@link isReadableText}) and
 * quotes no secret in the sense of {@link quotesUnbroken}. Holds back the end of a piece, from its last blank
 * on: any end, since a hold would otherwise tell how a secret begins.
 */
export class SecretScreen {
  readonly #traces: SecretTraces
  readonly #reach: number
  #held: Buffer = NOTHING
  #begins = true
  #quoted = false

  constructor(traces: SecretTraces) {
    this.#traces = traces
    this.#reach = reachOf(traces)
  }

  /** True once a secret was quoted, or the text could not be read. */
  get quoted(): boolean {
    return this.#quoted
  }

  /** Takes the next piece. Returns the bytes that may go on by now; null once it is {@link quoted}. */
  push(piece: Buffer): Buffer | null {
    const text = this.#held.length > 0 ? Buffer.concat([this.#held, piece]) : piece
    this.#quoted ||= !isReadableText(piece, this.#begins) || quotesUnbroken(this.#traces, text)
    this.#begins = false
    if (this.#quoted) return null
    // No secret holds a blank, nor do its escapes.
    let from = text.length
    const least = Math.max(0, text.length - this.#reach)
    while (from > least && (text[from - 1] ?? 0) > SPACE) from -= 1
    // A copy: it would keep all of the piece.
    this.#held = from < text.length ? Buffer.from(text.subarray(from)) : NOTHING
    return text.subarray(0, from)
  }

  /** Returns the bytes held back, once nothing more comes. */
  flush(): Buffer {
    const rest = this.#held
    this.#held = NOTHING
    return rest
  }
}
