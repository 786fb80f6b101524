import { type DestinationStream, type Logger, pino } from 'pino'
import type { JsonValue } from '../../db/support/json.ts'
import { LogOutput } from './log-output.ts'

/** Places in a logged object that could hold a secret (docs/threats.md#threat-30). */
const REDACTED = [
  'authorization',
  'dpop',
  'cookie',
  'secret',
  'api_key',
  'private_key_pem',
  '["x-admin-secret"]',
  '["x-api-key"]',
  '["sallyport-authorization"]',
  '["sallyport-x-api-key"]',
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
  '*["sallyport-authorization"]',
  '*["sallyport-x-api-key"]',
]

/** The members of a request's line. Undefined ones are left out. */
export type RequestLine = Readonly<Record<string, JsonValue | undefined>>

export interface GatewayLogs {
  readonly log: Logger
  /** Writes a request's line, without redaction, at level `info`; at `warn` that of a refused one only. */
  readonly requestLog: (line: RequestLine) => void
  /** Writes the lines that are still held back. Resolves when they are written, or after a second. */
  readonly flush: () => Promise<void>
  readonly losses: Pick<LogOutput, 'lost' | 'isLosing'>
}

/** Opens the logs: one JSON line per event. `stream`: in place of standard output. */
export function createLogs(level: string, stream?: DestinationStream): GatewayLogs {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime }
  const out = stream ? givenOutput(stream) : new LogOutput(lossText)
  const log = pino({ ...options, redact: REDACTED }, out)
  return {
    log,
    requestLog: (line) => {
      if (log.isLevelEnabled('info')) out.write(`${requestText(line, 30)}\n`)
      else if (line.reason !== undefined && log.isLevelEnabled('warn'))
        out.write(`${requestText(line, 40)}\n`)
    },
    flush: () => out.flushed(),
    losses: out,
  }
}

const givenOutput = (stream: DestinationStream) => ({
  lost: 0,
  isLosing: false,
  write: (line: string) => stream.write(line),
  flushed: () => Promise.resolve(),
})

// Like pino, which puts a line together member by member: with more than twice the garbage.
const requestText = (line: RequestLine, level: number): string =>
  JSON.stringify({ level, time: new Date().toISOString(), ...line, msg: 'request' })

const lossText = (lost: number): string =>
  JSON.stringify({
    level: 40,
    time: new Date().toISOString(),
    lost_lines: lost,
    msg: 'lines of this log were lost: standard output did not take them',
  })
