import { BYTES_AT_ONCE, type WorkSteps } from '../turns.ts'
import { mayHoldEscapes, withoutEscapes } from './escapes.ts'

/**
 * The texts by which a secret is found: itself, and its base64 at each of the three offsets that it may have
 * in a longer text (`Basic`, a header as bytes). Latin-1. Can be handed to a thread.
 */
export type SecretTraces = readonly string[]

/** A shorter secret would be found in texts that do not quote it. Characters. */
export const MIN_TRACED_CHARACTERS = 8

/** The levels of escapes that are resolved: JSON as a text in JSON, and so on. */
const MAX_LEVELS = 4

/** Makes the traces of secrets. The empty one has none; one shorter than 8 characters has no base64. */
export function secretTraces(secrets: Iterable<string>): SecretTraces {
  const traces = new Set<string>()
  for (const secret of secrets) {
    if (secret === '') continue
    // The bytes of a header, and of a text.
    for (const bytes of [Buffer.from(secret, 'latin1'), Buffer.from(secret)]) {
      traces.add(bytes.toString('latin1'))
      if (secret.length >= MIN_TRACED_CHARACTERS) for (const encoded of base64Of(bytes)) traces.add(encoded)
    }
  }
  return [...traces]
}

/**
 * Returns the base64 of bytes within a longer text, in both alphabets: only the characters that do not depend
 * on the bytes around them.
 */
function base64Of(bytes: Buffer): readonly string[] {
  return [0, 1, 2].flatMap((offset) => {
    const padded = Buffer.concat([Buffer.alloc(offset), bytes])
    const [first, end] = [Math.ceil((offset * 8) / 6), Math.floor((padded.length * 8) / 6)]
    return [padded.toString('base64'), padded.toString('base64url')].map((text) => text.slice(first, end))
  })
}

/**
 * Tells whether a text quotes one of the secrets: as it is, or with its escapes resolved, up to four of them
 * one in another. Linear in its length. Does NOT find a secret in parts, reversed, or in another code.
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
export function* quotesSecretSteps(traces: SecretTraces, text: Buffer): WorkSteps<boolean> {
  const screen = new SecretScreen(traces)
  for (let at = 0; at < text.length; at += BYTES_AT_ONCE) {
    if (screen.push(text.subarray(at, at + BYTES_AT_ONCE)) === null) return true
    yield
  }
  return false
}

/** The bytes that a character of a secret may take, escaped in a text of a text of a text: `\\\\u003d`. */
const ESCAPED_LENGTH = 9
/** Bytes. No more is held back, however long a secret is. */
const MAX_HELD = 16_384
const SPACE = 0x20
const NOTHING = Buffer.alloc(0)

/**
 * Passes a text on in the pieces that it comes in, as long as it quotes no secret in the sense of {@link
 * quotesSecret}, wherever it is divided. Holds back the end of a piece, from its last blank on: any end,
 * since a hold would otherwise tell how a secret begins.
 */
export class SecretScreen {
  readonly #traces: SecretTraces
  /** The bytes that an escaped secret may take. */
  readonly #reach: number
  #held: Buffer = NOTHING
  #quoted = false

  constructor(traces: SecretTraces) {
    this.#traces = traces
    const longest = Math.max(0, ...traces.map(({ length }) => length))
    this.#reach = Math.min(ESCAPED_LENGTH * longest, MAX_HELD)
  }

  /** True once a secret was quoted. */
  get quoted(): boolean {
    return this.#quoted
  }

  /** Takes the next piece. Returns the bytes that may go on by now; null once a secret was quoted. */
  push(piece: Buffer): Buffer | null {
    const text = this.#held.length > 0 ? Buffer.concat([this.#held, piece]) : piece
    this.#quoted ||= quotesSecret(this.#traces, text)
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
