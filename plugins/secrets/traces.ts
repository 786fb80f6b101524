import { AT_ONCE, type Steps } from '../turns.ts'
import { mayHoldEscapes, withoutEscapes } from './escapes.ts'

/**
 * The texts by which a secret is found: itself, and its base64 at each of the three offsets that it may have in a
 * longer text (`Basic`, a header as bytes). Latin-1. Can be handed to a thread.
 */
export type SecretTraces = readonly string[]

/** A shorter secret would be found where nobody quotes it. Characters. */
export const SHORTEST_SECRET = 8

/** The levels of escapes that are resolved: JSON as a text in JSON, and so on. */
const MAX_LEVELS = 4

/** Makes the traces of secrets. Of the empty one there are none; of one shorter than 8 characters no base64. */
export function tracesOf(secrets: Iterable<string>): SecretTraces {
  const traces = new Set<string>()
  for (const secret of secrets) {
    if (secret === '') continue
    // As a header carries it, and as a text does.
    for (const bytes of [Buffer.from(secret, 'latin1'), Buffer.from(secret)]) {
      traces.add(bytes.toString('latin1'))
      if (secret.length >= SHORTEST_SECRET) for (const encoded of base64Of(bytes)) traces.add(encoded)
    }
  }
  return [...traces]
}

/** Returns the base64 of bytes within a longer text, in both alphabets: the characters that nothing beside them changes. */
function base64Of(bytes: Buffer): readonly string[] {
  return [0, 1, 2].flatMap((offset) => {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes])
    const [first, end] = [Math.ceil((offset * 8) / 6), Math.floor((padded.length * 8) / 6)]
    return [padded.toString('base64'), padded.toString('base64url')].map((text) => text.slice(first, end))
  })
}

/**
 * Tells whether a text quotes one of the secrets: as it is, or with its escapes resolved, up to four of them one in
 * another. Linear in its length. Does NOT find a secret in parts, reversed, or in another code.
 */
export function quotesSecret(traces: SecretTraces, text: Buffer): boolean {
  if (traces.length === 0) return false
  let reading = text
  for (let level = 0; ; level += 1) {
    if (hasTrace(traces, reading.toString('latin1'))) return true
    if (level === MAX_LEVELS || !mayHoldEscapes(reading)) return false
    const next = withoutEscapes(reading)
    if (next.length === reading.length) return false
    reading = next
  }
}

const hasTrace = (traces: SecretTraces, text: string): boolean => traces.some((trace) => text.includes(trace))

/** Does what {@link quotesSecret} does, of a long text, in steps far below a slice. */
export function* quotingSecret(traces: SecretTraces, text: Buffer): Steps<boolean> {
  const screen = new SecretScreen(traces)
  for (let at = 0; at < text.length; at += AT_ONCE) {
    if (screen.take(text.subarray(at, at + AT_ONCE)) === null) return true
    yield
  }
  return false
}

/** A shorter part of a secret may go on before the rest of it has come. Characters. */
const SHORTEST_PART = 6
/** The bytes that a character of a secret may take, escaped in a text of a text of a text: `\\\\u003d`. */
const ESCAPED_LENGTH = 9
/** What may be the beginning of an escape, or of escapes one in another, at the end of a text. */
const BEGUN_ESCAPE = /(?:\\+(?:u[\da-f]{0,3}|x[\da-f]?)?|%[\da-f]?|&[#\da-z]{0,11})$/i
const LONGEST_ESCAPE = 24
const SPACE = 0x20
const NOTHING = Buffer.alloc(0)

/**
 * Passes a text on in the pieces that it comes in, as long as it quotes no secret in the sense of
 * {@link quotesSecret}, wherever it is divided. Holds a piece's end back where that may be the beginning of a secret, of
 * which fewer than 6 characters may pass.
 */
export class SecretScreen {
  readonly #traces: SecretTraces
  /** The bytes that a secret with escaped characters may take. */
  readonly #reach: number
  /** The end of what was taken, where a secret may have begun in it. */
  #begun: Buffer = NOTHING
  #held: Buffer = NOTHING
  #quoted = false

  constructor(traces: SecretTraces) {
    this.#traces = traces
    this.#reach = ESCAPED_LENGTH * Math.max(0, ...traces.map(({ length }) => length)) + LONGEST_ESCAPE
  }

  /** True once a secret was quoted. */
  get quoted(): boolean {
    return this.#quoted
  }

  /** Takes the next piece. Returns the bytes that may go on by now; null where a secret was quoted. */
  take(piece: Buffer): Buffer | null {
    const text = this.#begun.length > 0 ? Buffer.concat([this.#begun, piece]) : piece
    const part = this.#look(text)
    if (this.#quoted) return null
    // A copy: it would keep all of the piece.
    this.#begun = part >= 0 ? Buffer.from(text.subarray(-this.#reach)) : NOTHING
    if (this.#held.length === 0 && part < SHORTEST_PART) return piece
    const pending = Buffer.concat([this.#held, piece])
    const held = part < SHORTEST_PART ? 0 : Math.min(pending.length, this.#reach)
    this.#held = pending.subarray(pending.length - held)
    return pending.subarray(0, pending.length - held)
  }

  /** Returns what is held back, once nothing more comes. */
  rest(): Buffer {
    const rest = this.#held
    this.#held = NOTHING
    return rest
  }

  /**
   * Looks for secrets in a text, in each of its readings. Returns the length of the longest beginning of one that it ends
   * with; 0: it ends with what may be a part of an escape; -1: neither.
   */
  #look(text: Buffer): number {
    let longest = -1
    let reading = text
    for (let level = 0; ; level += 1) {
      const read = reading.toString('latin1')
      this.#quoted ||= hasTrace(this.#traces, read)
      const begun = begunEscape(read)
      if (begun > 0) longest = Math.max(longest, 0)
      longest = partAtEnd(this.#traces, read.slice(0, read.length - begun), longest)
      if (this.#quoted || level === MAX_LEVELS || !mayHoldEscapes(reading)) return longest
      const next = withoutEscapes(reading.subarray(0, reading.length - begun))
      if (next.length === reading.length) return longest
      reading = next
    }
  }
}

function begunEscape(text: string): number {
  if (text.charCodeAt(text.length - 1) <= SPACE) return 0
  return BEGUN_ESCAPE.exec(text.slice(-LONGEST_ESCAPE))?.[0].length ?? 0
}

/** The length of the longest beginning of a secret that a text ends with, where it is longer than that. */
function partAtEnd(traces: SecretTraces, text: string, than: number): number {
  const last = text.at(-1) ?? ' '
  let longest = than
  // In no secret there is a blank, and nearly every piece of an answer ends with one.
  if (last <= ' ') return longest
  for (const trace of traces) {
    for (let length = Math.min(trace.length - 1, text.length); length > Math.max(0, longest); length -= 1) {
      if (trace[length - 1] === last && text.endsWith(trace.slice(0, length))) longest = length
    }
  }
  return longest
}
