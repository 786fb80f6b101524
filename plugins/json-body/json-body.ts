import type { Hash } from 'node:crypto'
import { isObject } from '../../db/json.ts'
import type { Commitments } from '../facts.ts'
import type { Arrival, Caller, Plugin } from '../plugin.ts'
import { Refusal, type RefusalReason } from '../refusal.ts'
import { AT_ONCE, inTurns, type Steps } from '../turns.ts'
import { type Scan, scanJson, scanning } from './scan.ts'

/** A body that is one JSON object. Given by `json_body`. */
export interface JsonBody {
  /** The bytes as they came: what goes upstream. */
  readonly body: Buffer
  /** The parsed body: this is judged, and never written back. */
  readonly json: Readonly<Record<string, unknown>>
  /** The place of each outermost member's value in `body`. */
  readonly spans: Scan['spans']
  /** The commitment to a long body, which takes too long to be made at once. Absent: of any other. */
  readonly bodySha256?: string
}

type Needs = Arrival & Caller & { readonly commitments?: Commitments }

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
}: Options): Plugin<Needs, JsonBody> {
  const objectOf = (body: Buffer, { value, spans }: Scan): JsonBody => {
    if (!isObject(value)) throw new Refusal(otherwise, { message: 'The body must be a JSON object.' })
    return { body, json: value, spans }
  }
  /** Reads a body that takes too long to be read at once, and commits to it. */
  const inSlices = async (body: Buffer, { hangup, commitments }: Needs): Promise<JsonBody> => {
    const { signal } = hangup
    const read = objectOf(body, await inTurns(scanning(body), signal))
    if (!commitments) return read
    const digest = digesting(body, commitments.hashing('body_sha256'))
    return { ...read, bodySha256: await inTurns(digest, signal) }
  }
  return {
    name: 'json_body',
    admit(arrival) {
      checkHeaders(arrival.headers)
      const read = (body: Buffer): JsonBody | Promise<JsonBody> => {
        if (empty && body.length === 0) return { body, json: {}, spans: new Map() }
        if (body.length === 0) throw refused('The body is empty; a JSON object is expected.')
        return body.length > AT_ONCE ? inSlices(body, arrival) : objectOf(body, scanJson(body))
      }
      const body = arrival.readBody(limit, arrival)
      return body instanceof Promise ? body.then(read) : read(body)
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
  if (value === 'application/json') return true
  const [type = '', ...parameters] = value.toLowerCase().split(';')
  if (type.trim() !== 'application/json') return false
  return parameters
    .map((parameter) => parameter.trim())
    .filter((parameter) => parameter.startsWith('charset='))
    .every((parameter) => /^charset="?utf-?8"?$/.test(parameter))
}

/** The digest is made in pieces of so many bytes. */
const PIECE = 262_144

function* digesting(body: Buffer, digest: Hash): Steps<string> {
  for (let at = 0; at < body.length; at += PIECE) {
    digest.update(body.subarray(at, at + PIECE))
    yield
  }
  return digest.digest('hex')
}
