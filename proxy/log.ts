import { type DestinationStream, destination, type Logger, pino } from 'pino'

/** Where a secret could stand in a logged object. Nothing logs these on purpose; this is the second line (threat 30). */
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

/** One JSON line per event, written asynchronously. `stream` stands in for standard output where a test reads the lines. */
export function createLog(level: string, stream?: DestinationStream): Logger {
  const options = { level, redact: REDACTED, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  return pino(options, stream ?? destination({ dest: 1, sync: false, minLength: 0 }))
}
