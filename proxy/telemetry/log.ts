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

/** The size of the writes that lines are held back for. Bytes. */
const WRITE_BYTES = 4_096
/** The longest time that lines are held back. ms. */
const HELD_MS = 250

/**
 * Opens the logs: one JSON line per event, written asynchronously. `stream` stands in for standard output
 * where a test reads the lines.
 */
export function createLogs(level: string, stream?: DestinationStream): Logs {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  if (stream)
    return {
      log: pino({ ...options, redact: REDACTED }, stream),
      requestLog: pino(options, stream),
      flush: () => {},
    }
  const out = destination({ dest: 1, sync: false, minLength: WRITE_BYTES })
  const flush = (): void => out.flush()
  setInterval(flush, HELD_MS).unref()
  return { log: pino({ ...options, redact: REDACTED }, out), requestLog: pino(options, out), flush }
}
