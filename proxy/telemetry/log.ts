import { type DestinationStream, destination, type Logger, pino } from 'pino'

/**
 * Where a secret could stand in a logged object. Nothing logs these on purpose; this is the second line
 * (docs/threats.md#threat-30).
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
  /** For everything that is not a request's own line. */
  readonly log: Logger
  /**
   * For the one line of each request: its fields are fixed and hold no secret, so it does not pay for
   * looking.
   */
  readonly requestLog: Logger
  /** Writes what is still held back. */
  readonly flush: () => void
}

/** Lines are held back until they make one write of this size, or this long. */
const WRITE_BYTES = 4_096
const HELD_MS = 250

/**
 * One JSON line per event, written asynchronously. `stream` stands in for standard output where a test reads
 * the lines.
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
