import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { ByteCollector } from '../../../plugins/collect.ts'
import { OPEN_BRACE } from '../../../plugins/json-body/bytes.ts'
import { type JsonScan, type JsonSpan, JUDGED_DEPTH, scanJson } from '../../../plugins/json-body/scan.ts'
import type { MemoryReservation } from '../../../plugins/plugin.ts'
import { BYTES_AT_ONCE } from '../../../plugins/turns.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import { areAllKnown, type JsonText, scannedMember } from '../protocol/json-text.ts'
import { MESSAGE_NAMES } from '../protocol/members.ts'
import { echoesSecret, type UpstreamCredentials } from './connections.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import type { McpResponseBody } from './exchange.ts'

export interface UpstreamMessage {
  readonly bytes: Buffer
  readonly value: UnknownRecord
  readonly spans: ReadonlyMap<string, JsonSpan>
  /** The result, error and params, if they are objects. */
  readonly objects: JsonScan['objects']
}

/** The outermost members of a message that are looked into. */
export const LOOKED_INTO = ['result', 'error', 'params'] as const

/** Tells of a message whether it was read in slices, and only what is small of its value kept. */
export const isLargeMessage = ({ bytes }: Pick<UpstreamMessage, 'bytes'>): boolean =>
  bytes.length > MAX_INLINE_BYTES

/** Tells of a small message whether it holds the secret of our credentials: a large one was searched as it was read. */
export const holdsSecret = (message: UpstreamMessage, credentials: UpstreamCredentials): boolean =>
  !isLargeMessage(message) && echoesSecret(credentials, message.bytes)

export type MessageKind = 'request' | 'notification' | 'response'

/**
 * Reads the bytes as one JSON-RPC 2.0 message as MCP has them: named parameters, ids that are strings or
 * integers (an error may have none), results that are objects. Throws McpUpstreamError for anything else:
 * batches, duplicate names, a member that some client takes for another one (`Method`), and all that
 * `scanJson` refuses. Does NOT know which method or id is expected.
 */
export function readMessage(bytes: Buffer): UpstreamMessage {
  return judgeMessage(bytes, scanMessage(bytes))
}

/**
 * Reads an event as {@link readMessage} does. Null: it is no message, and cannot be meant as the response to
 * this request. Throws if it can.
 */
export function readEvent(bytes: Buffer, requestId: number): UpstreamMessage | null {
  let scan: JsonScan | null = null
  try {
    // A heartbeat, as a rule.
    if (bytes[startOf(bytes)] !== OPEN_BRACE && !mentionsId(bytes, requestId)) return null
    scan = scanMessage(bytes)
    return judgeMessage(bytes, scan)
  } catch (error) {
    if (isMeantFor(requestId, bytes, scan?.value)) throw error
    return null
  }
}

/** Tells of what is no message whether it may be the response to this request. `value`: if it is JSON. */
export const isMeantFor = (requestId: number, bytes: Buffer, value: unknown): boolean =>
  isObject(value) ? value.id === requestId && !Object.hasOwn(value, 'method') : mentionsId(bytes, requestId)

function startOf(bytes: Buffer): number {
  let at = 0
  while ((bytes[at] ?? OPEN_BRACE) <= SPACE) at += 1
  return at
}

const SPACE = 0x20
/** The members that are looked at: one of more than these may be it. */
const MAX_IDS = 1_000

/** Tells of bytes that are no message whether a member `id` in them has this value. */
function mentionsId(bytes: Buffer, id: number): boolean {
  let at = bytes.indexOf(ID)
  for (let ids = 0; at >= 0 && ids < MAX_IDS; ids += 1) {
    const [, found] =
      /^\s*:\s*(-?\d+)(?![\d.eE])/.exec(bytes.toString('latin1', at + ID.length, at + 64)) ?? []
    if (found !== undefined && Number(found) === id) return true
    at = bytes.indexOf(ID, at + ID.length)
  }
  return at >= 0
}

const ID = Buffer.from('"id"')

/** Reads a JSON text of this value as {@link readMessage} does. */
export function judgeMessage(
  bytes: Buffer,
  { value, spans, objects }: Pick<JsonScan, 'value' | 'spans' | 'objects'>,
): UpstreamMessage {
  if (!isObject(value)) throw mcpUpstreamFailure('a message is not one JSON object')
  if (kindOf(value) === null) throw mcpUpstreamFailure('a message is not JSON-RPC 2.0')
  const { exact } = MESSAGE_NAMES
  if (!areAllKnown(spans.keys(), exact) && MESSAGE_NAMES.areMistaken(spans.keys()))
    throw mcpUpstreamFailure('a message can be read in two ways')
  return { bytes, value, spans, objects }
}

export const messageObject = (
  message: UpstreamMessage,
  name: (typeof LOOKED_INTO)[number],
): JsonText | null => scannedMember(message, name, message.value[name])

export function kindOfMessage({ value }: UpstreamMessage): MessageKind {
  if (!Object.hasOwn(value, 'method')) return 'response'
  return Object.hasOwn(value, 'id') ? 'request' : 'notification'
}

/** Returns the result of a response, or null if it is an error. */
export const responseResult = ({ value }: UpstreamMessage): UnknownRecord | null =>
  isObject(value.result) ? value.result : null

/** Returns the code of a response that is an error, or null. */
export function errorCodeOf({ value }: UpstreamMessage): number | null {
  return isObject(value.error) && typeof value.error.code === 'number' ? value.error.code : null
}

/** Returns the revisions of the protocol that an error says its server supports; empty if it says none. */
export function supportedIn({ value: { error } }: UpstreamMessage): readonly unknown[] {
  if (!isObject(error) || !isObject(error.data) || !Array.isArray(error.data.supported)) return []
  return error.data.supported
}

function scanMessage(bytes: Buffer): JsonScan {
  try {
    return scanJson(bytes, JUDGED_DEPTH, LOOKED_INTO)
  } catch (error) {
    // It names the fault and its byte, and quotes nothing.
    throw mcpUpstreamFailure('a message is not strict JSON', { cause: error })
  }
}

function kindOf(value: UnknownRecord): MessageKind | null {
  if (value.jsonrpc !== '2.0') return null
  return Object.hasOwn(value, 'method') ? kindOfCall(value) : kindOfResponse(value)
}

function kindOfCall(value: UnknownRecord): MessageKind | null {
  const { method, params, id } = value
  if (typeof method !== 'string' || method === '') return null
  if (Object.hasOwn(value, 'result') || Object.hasOwn(value, 'error')) return null
  // Some servers write none as null.
  if ((params ?? null) !== null && !isObject(params)) return null
  if (!Object.hasOwn(value, 'id')) return 'notification'
  return isId(id) ? 'request' : null
}

function kindOfResponse(value: UnknownRecord): MessageKind | null {
  const { result, error, id } = value
  if (Object.hasOwn(value, 'result') === Object.hasOwn(value, 'error')) return null
  if (Object.hasOwn(value, 'result')) return isObject(result) && isId(id) ? 'response' : null
  const isError = isObject(error) && Number.isInteger(error.code) && typeof error.message === 'string'
  return isError && (isId(id) || (id ?? null) === null) ? 'response' : null
}

const isId = (id: unknown): boolean => typeof id === 'string' || Number.isSafeInteger(id)

/**
 * Reads the whole body, at once if all of it has come. Rejects with McpUpstreamError `too_large` past
 * `maxBytes` and with the body's own errors, and refuses with `overloaded`; the request is ended then.
 */
export function readEntireBody(
  body: McpResponseBody,
  maxBytes: number,
  held: MemoryReservation | null = null,
): Buffer | Promise<Buffer> {
  const come = body.complete ? body.read() : null
  if (!Buffer.isBuffer(come)) return collectMessage(body, maxBytes, held)
  if (come.length > maxBytes) throw tooLarge()
  const later = held?.reserveAnswerInTurn(come.length)
  return later ? later.then(() => come) : come
}

async function collectMessage(
  body: McpResponseBody,
  maxBytes: number,
  held: MemoryReservation | null,
): Promise<Buffer> {
  const collector = new ByteCollector(maxBytes)
  try {
    for (let piece = await body.read(); piece !== null; piece = await body.read()) {
      const later = held?.reserveAnswerInTurn(piece.length)
      if (later) await later
      if (!collector.add(piece)) throw tooLarge()
    }
  } catch (error) {
    body.destroy()
    throw error
  }
  return collector.length > BYTES_AT_ONCE ? collector.bytesInTurns() : collector.bytes()
}

const tooLarge = (): McpUpstreamError => new McpUpstreamError('too_large', 'the answer is too large')
