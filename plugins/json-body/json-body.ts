import { isObject, type Members } from '../../db/json.ts'
import type { Arrival, Caller, Plugin } from '../plugin.ts'
import { Refusal, type RefusalReason } from '../refusal.ts'
import { type Scan, scanJson } from './scan.ts'

/** A body that is one JSON object. Given by `json_body`. */
export interface JsonBody {
  /** The bytes as they came: what goes upstream. */
  readonly body: Buffer
  /** The parsed body: this is judged, and never written back. */
  readonly json: Readonly<Record<string, unknown>>
  /** The place of each outermost member's value in `body`. */
  readonly spans: Scan['spans']
}

interface Options {
  /** Bytes. A longer body is refused with `body_too_large`. */
  readonly limit: number
  /** An empty body stands for `{}`: for requests whose every member is optional. Default: it is refused. */
  readonly empty?: boolean
  /** The reason that JSON which is no object is refused with. Default: as any other body. */
  readonly otherwise?: RefusalReason
}

/**
 * Reads the body and takes it for a JSON object, or refuses with `body_invalid` (docs/protocol.md#llm-order:
 * before the capability is asked). A missing content-type is accepted; any other than `application/json` in
 * UTF-8, and any content-encoding, is not. Does NOT look at a single member.
 */
export function jsonBody({
  limit,
  empty = false,
  otherwise = 'body_invalid',
}: Options): Plugin<Arrival & Caller, JsonBody> {
  return {
    name: 'json_body',
    async admit(arrival) {
      checkHeaders(arrival.headers)
      const body = await arrival.readBody(limit, arrival)
      if (empty && body.length === 0) return { body, json: {}, spans: new Map() }
      const { spans } = scanJson(body)
      return { body, json: parseObject(body, otherwise), spans }
    },
  }
}

function checkHeaders(headers: Arrival['headers']): void {
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    throw refused('The body must not be compressed: send it without content-encoding.')
  }
  const type = headers['content-type']
  if (type !== undefined && !isJsonType(type)) {
    throw refused('The body must be JSON in UTF-8: send content-type: application/json.')
  }
}

const refused = (message: string): Refusal => new Refusal('body_invalid', { message })

/** `application/json`, with parameters or not; a charset, when named, must be UTF-8 (RFC 8259 §8.1). */
function isJsonType(value: string): boolean {
  const [type = '', ...parameters] = value.toLowerCase().split(';')
  if (type.trim() !== 'application/json') return false
  return parameters
    .map((parameter) => parameter.trim())
    .filter((parameter) => parameter.startsWith('charset='))
    .every((parameter) => /^charset="?utf-?8"?$/.test(parameter))
}

function parseObject(body: Buffer, otherwise: RefusalReason): Members {
  let value: unknown
  try {
    value = JSON.parse(body.toString('utf8'))
  } catch (error) {
    throw refused(sentence(body, error))
  }
  if (!isObject(value)) throw new Refusal(otherwise, { message: 'The body must be a JSON object.' })
  return value
}

/**
 * Says where the reader stopped. Its own message quotes the body, which may be a prompt, so nothing else of
 * it is kept.
 */
function sentence(body: Buffer, error: unknown): string {
  if (body.length === 0) return 'The body is empty; a JSON object is expected.'
  const position = error instanceof Error ? /at position (\d+)/.exec(error.message)?.[1] : undefined
  return position === undefined
    ? 'The body is not valid JSON; it ends too early or holds something else.'
    : `The body is not valid JSON (at character ${position}).`
}
