import { type DestinationStream, destination, type Logger, pino } from 'pino'

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

export interface Logs {
  /** The log of everything but the requests' own lines. */
  readonly log: Logger
  /**
   * The log of the one line of each request: its fields are fixed and hold no secret, so it does not pay for
   * redaction.
   */
  readonly requestLog: Logger
  /** Writes the lines that are still held back. */
  readonly flush: () => void
}

/** Lines are held back until they are as long as this. Characters. */
const WRITE_LENGTH = 65_536
/** The longest time that lines are held back. ms. */
const HELD_MS = 250

/**
 * Opens the logs: one JSON line per event, written asynchronously. `stream` stands in for standard output
 * where a test reads the lines.
 */
export function createLogs(level: string, stream?: DestinationStream): Logs {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  const out = stream ? { write: (line: string) => stream.write(line), flush: () => {} } : heldLines()
  return {
    log: pino({ ...options, redact: REDACTED }, out),
    requestLog: pino(options, out),
    flush: () => out.flush(),
  }
}

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
  // For whoever ends the process without a word, and for pino's fatal errors.
  const flushSync = (): void => {
    if (length === 0) return
    flush()
    out.flushSync()
  }
  // Before the stream's own, which close it.
  process.once('beforeExit', flush)
  process.once('exit', flushSync)
  const out = destination({ dest: 1, sync: false })
  const write = (line: string): void => {
    lines.push(line)
    length += line.length
    if (length >= WRITE_LENGTH) flush()
  }
  setInterval(flush, HELD_MS).unref()
  return { write, flush, flushSync }
}
