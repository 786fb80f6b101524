import { type DestinationStream, destination, type Logger, pino } from 'pino'
import type { Json } from '../../db/json.ts'

/**
 * The places in a logged object where a secret could stand. Nothing logs these on purpose; this is the second
 * line of defence (docs/threats.md#threat-30).
 */
const REDACTED = [
  'authorization',
  'dpop',
  'cookie',
  'secret',
  'api_key',
  'private_key_pem',
  '["x-admin-secret"]',
  '["x-api-key"]',
  'headers',
  'body',
  '*.authorization',
  '*.dpop',
  '*.cookie',
  '*.secret',
  '*.api_key',
  '*.private_key_pem',
  '*["x-admin-secret"]',
  '*["x-api-key"]',
]

/** The members of a request's line. What is undefined is left out. */
export type RequestLine = Readonly<Record<string, Json | undefined>>

export interface Logs {
  /** The log of everything but the requests' own lines. */
  readonly log: Logger
  /**
   * Writes the one line of a request, at level `info`: its members are fixed and hold no secret, so it pays for no
   * redaction.
   */
  readonly requestLog: (line: RequestLine) => void
  /** Writes whole lines of another process. */
  readonly pass: (lines: string) => void
  /** Writes the lines that are still held back. Resolves when they are written, or after a second. */
  readonly flush: () => Promise<void>
}

/** Lines are held back until they are as long as this. Characters. */
const WRITE_LENGTH = 65_536
/** The longest time that lines are held back. ms. */
const HELD_MS = 250
/** The longest time that an orderly end waits for whoever reads the lines. ms. */
const READ_MS = 1_000

/**
 * Opens the logs: one JSON line per event, written asynchronously. `stream` stands in for standard output
 * where a test reads the lines. `worker`: the number of this process, which then stands in each line.
 */
export function createLogs(level: string, stream?: DestinationStream, worker?: number): Logs {
  const base = worker === undefined ? null : { worker }
  const options = { level, base, timestamp: pino.stdTimeFunctions.isoTime }
  const out = stream
    ? { write: (line: string) => stream.write(line), flushed: () => Promise.resolve() }
    : heldLines()
  const log = pino({ ...options, redact: REDACTED }, out)
  return {
    log,
    requestLog: (line) => {
      if (log.isLevelEnabled('info')) out.write(`${requestText(line, worker)}\n`)
    },
    pass: (lines) => out.write(lines),
    flush: () => out.flushed(),
  }
}

// As pino writes it, which puts a line together member by member: with more than twice the garbage.
const requestText = (line: RequestLine, worker?: number): string =>
  JSON.stringify({ level: 30, time: new Date().toISOString(), worker, ...line, msg: 'request' })

/**
 * Holds lines and writes many at once. Not the stream's own buffer: it measures all that it holds at each line
 * that it is given.
 */
function heldLines() {
  let lines: string[] = []
  let length = 0
  const flush = (): void => {
    if (length > 0) out.write(lines.join(''))
    lines = []
    length = 0
  }
  const flushed = (): Promise<void> =>
    new Promise((resolve) => {
      flush()
      out.flush(() => resolve())
      setTimeout(resolve, READ_MS).unref()
    })
  // For whoever ends the process without a word, and for pino's fatal errors. What is being written at that instant
  // is the system's to finish.
  const flushSync = (): void => {
    if (length === 0) return
    flush()
    out.flushSync()
  }
  // Before the stream's own, which close it.
  process.once('beforeExit', flush)
  process.once('exit', flushSync)
  // With a least length of none, its flush would not wait.
  const out = destination({ dest: 1, sync: false, minLength: 1 })
  const write = (line: string): void => {
    lines.push(line)
    length += line.length
    if (length >= WRITE_LENGTH) flush()
  }
  setInterval(flush, HELD_MS).unref()
  return { write, flushed, flushSync }
}
