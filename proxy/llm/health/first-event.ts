import { Readable } from 'node:stream'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { HangupSignal } from '../../../plugins/arrival.ts'
import { parseOrNothing } from '../dialects/statements.ts'
import { hangupReason } from '../upstream/answer.ts'

/** Bytes. The longest event that is looked into: a failure is told in few words. */
const MAX_FIRST_EVENT = 16_384

/** A failure in the place of a stream's first event. */
export interface StreamedFailure {
  /** The HTTP status that says the same. */
  readonly status: number
  readonly event: { readonly bytes: Buffer; readonly document: UnknownRecord }
}

export interface PeekedStream {
  /** Null: the stream begins as one that succeeds, or as one of which that is not known. */
  readonly failure: StreamedFailure | null
  /** The stream from its first byte on. */
  readonly body: Readable
}

/**
 * Looks at the first event of a stream that nobody has read yet, until it is whole, or known to be no failure: by its
 * name, its length, or because a comment came instead. Rejects with the error of a stream that breaks before that,
 * and the hangup's reason if its caller has gone. Does NOT look at any later event.
 */
export function peekFirstEvent(
  body: Readable,
  hangup: Pick<HangupSignal, 'gone' | 'reason'>,
): Promise<PeekedStream> {
  const { promise, resolve, reject } = Promise.withResolvers<PeekedStream>()
  let seen: Buffer = Buffer.alloc(0)
  const listeners = {
    readable: () => {
      for (let piece: unknown = body.read(); Buffer.isBuffer(piece); piece = body.read())
        seen = seen.length === 0 ? piece : Buffer.concat([seen, piece])
      const failure = failureInFirstEvent(seen, false)
      if (failure === undefined) return
      stop()
      body.unshift(seen)
      resolve({ failure, body })
    },
    end: () => {
      stop()
      const rest = Readable.from(seen.length === 0 ? [] : [seen], { objectMode: false })
      resolve({ failure: failureInFirstEvent(seen, true) ?? null, body: rest })
    },
    error: (error: Error) => {
      stop()
      reject(error)
    },
    close: () => {
      stop()
      reject(hangup.gone ? hangupReason(hangup) : new Error('the stream was closed before its first event'))
    },
  }
  const stop = (): void => {
    for (const [name, listener] of Object.entries(listeners)) body.off(name, listener)
  }
  for (const [name, listener] of Object.entries(listeners)) body.on(name, listener)
  return promise
}

/**
 * Returns the failure that the first event of a stream tells of, null if it tells of none. Undefined: more of it must
 * come. `isWhole`: nothing more comes.
 */
export function failureInFirstEvent(bytes: Buffer, isWhole: boolean): StreamedFailure | null | undefined {
  const text = bytes.toString().replace(LEADING, '').replaceAll(/\r\n?/g, '\n')
  if (text === '') return isWhole || bytes.length >= MAX_FIRST_EVENT ? null : undefined
  // Providers send comments while they work, and the caller must get them.
  if (!FIELD.test(text)) return null
  const end = text.indexOf('\n\n')
  if (end < 0 && !isWhole) {
    const [, name] = NAME_LINE.exec(text) ?? []
    const isHealthy = name !== undefined && !FAILURE_NAMES.has(name)
    return isHealthy || bytes.length >= MAX_FIRST_EVENT ? null : undefined
  }
  return failureInEvent(end < 0 ? text : text.slice(0, end), bytes)
}

function failureInEvent(event: string, bytes: Buffer): StreamedFailure | null {
  const valuesOf = (field: string): readonly string[] =>
    event
      .split('\n')
      .flatMap((line) => (line.startsWith(field) ? [line.slice(field.length).trimStart()] : []))
  const document = parseOrNothing(valuesOf('data:').join('\n'))
  if (!isObject(document)) return null
  const status = statusOfDocument(document, valuesOf('event:').at(-1) ?? '')
  return status === null ? null : { status, event: { bytes, document } }
}

/** A mark, and the lines that some begin with. */
const LEADING = /^\uFEFF?\s*/
/** The beginning of an event, as far as it has come. */
const FIELD = /^(?:d|e|i|r)/
const NAME_LINE = /^event: ?(.*)\n/
/** The events by which a stream says that it has failed. */
const FAILURE_NAMES: ReadonlySet<string> = new Set(['error', 'response.failed'])

function statusOfDocument(root: UnknownRecord, name: string): number | null {
  const { error, response, type } = root
  if (isObject(error)) return statusOfError(error)
  if (isObject(response) && isObject(response.error)) return statusOfError(response.error)
  return type === 'error' || name === 'error' ? statusOfError(root) : null
}

/** Returns the status of an error of the provider; null for one of the request, or in unknown words. */
function statusOfError({ type, code, status }: UnknownRecord): number | null {
  const number = [code, status].map(Number).find((one) => Number.isInteger(one) && one >= 400 && one <= 599)
  if (number !== undefined) return number === 429 || number >= 500 ? number : null
  const words = [type, code, status].filter((one) => typeof one === 'string').join(' ')
  return STATUSES.find(([pattern]) => pattern.test(words))?.[1] ?? null
}

/** The words for a failure: of OpenAI and Anthropic, and of the servers that speak as they do. */
const STATUSES: readonly (readonly [RegExp, number])[] = [
  [/overloaded/i, 529],
  [/rate_?limit|too_?many_?requests|insufficient_quota|throttl|resource_?exhausted/i, 429],
  [/unavailable/i, 503],
  [/timeout|timed_out/i, 504],
  [/server_?error|api_error|internal/i, 500],
]
