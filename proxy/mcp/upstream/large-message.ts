import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { TaskIncompleteError } from '../../../db/support/thread.ts'
import { OPEN_BRACE, OPEN_BRACKET } from '../../../plugins/json-body/bytes.ts'
import {
  type JsonScan,
  type MemberSpan,
  scanJson,
  scanJsonSteps,
  scanPlacesSteps,
} from '../../../plugins/json-body/scan.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { quotesSecretSteps, type SecretTraces } from '../../../plugins/secrets/traces.ts'
import { runInSlices, type WorkSteps } from '../../../plugins/turns.ts'
import { callThreads } from '../aside/aside.ts'
import type { ListItems } from '../aside/messages.ts'
import { LIST_ITEM_MEMBERS } from '../protocol/known-members.ts'
import { soundItem } from '../protocol/sound-items.ts'
import { mcpUpstreamFailure } from './errors.ts'
import {
  isLargeMessage,
  isMeantFor,
  judgeMessage,
  LOOKED_INTO,
  responseResult,
  type UpstreamMessage,
} from './message.ts'

/** The most members of one object with a place of their own. A hundred times as many as MCP knows. */
const MAX_SPANS = 1_000
/** The most that is kept of a large message: bytes of JSON, and values, of 1 µs each. */
const MAX_KEPT = { bytes: 256 * 1024, values: 4_000 }

export const MAX_LIST_ITEMS = 10_000

/** The author of a message, and the end of waiting for it. */
export interface ThreadAsker {
  readonly key: string
  readonly signal: AbortSignal
}

interface LargeReadOptions extends Pick<ThreadAsker, 'signal'> {
  readonly traces: SecretTraces
}

/**
 * Reads a large message in slices. Objects and lists in its `value` are emptied if they are not at the top, or
 * the top of its result, error or params, and together larger than {@link MAX_KEPT}. Throws McpUpstreamError
 * also if it has more than 1,000 members there, or holds one of the traces.
 */
export async function readLarge(bytes: Buffer, options: LargeReadOptions): Promise<UpstreamMessage> {
  const message = await readLargeEvent(bytes, { ...options, requestId: null })
  if (message === null) throw new Error('a message was passed over that is not of a stream')
  return message
}

/** Reads a large event; null as {@link readEvent} has it. Else does what {@link readLarge} does. */
export async function readLargeEvent(
  bytes: Buffer,
  { signal, traces, requestId }: LargeReadOptions & { readonly requestId: number | null },
): Promise<UpstreamMessage | null> {
  try {
    return await runInSlices(readSteps(bytes, traces, requestId), signal)
  } catch (error) {
    throw signal.aborted ? signal.reason : error
  }
}

function* readSteps(
  bytes: Buffer,
  traces: SecretTraces,
  requestId: number | null,
): WorkSteps<UpstreamMessage | null> {
  let value: UnknownRecord | null = null
  let message: UpstreamMessage
  try {
    const scan = yield* scanPlacesSteps(bytes, LOOKED_INTO)
    if (!scan.isObject) throw mcpUpstreamFailure('a message is not one JSON object')
    const { spans, objects } = scan
    if ([scan, ...objects.values()].some((object) => object.spans.size > MAX_SPANS))
      throw mcpUpstreamFailure('a message has too many members')
    value = yield* truncatedSteps(bytes, scan)
    message = judgeMessage(bytes, { value, spans, objects })
  } catch (error) {
    if (requestId !== null && !isMeantFor(requestId, bytes, value)) return null
    if (!(error instanceof Refusal)) throw error
    throw mcpUpstreamFailure('a message is not strict JSON', { cause: error })
  }
  if (yield* quotesSecretSteps(traces, bytes))
    throw mcpUpstreamFailure('a message holds the secret of our credentials')
  return message
}

/** Makes the value of a message, of which each large part is emptied. */
function* truncatedSteps(bytes: Buffer, { spans, objects }: JsonScan): WorkSteps<UnknownRecord> {
  const room = { ...MAX_KEPT }
  const value: UnknownRecord = {}
  for (const [name, span] of spans) {
    const own = objects.get(name)
    if (!own) yield* truncateSteps(value, name, bytes, span, room)
    else {
      const object: UnknownRecord = {}
      const text = bytes.subarray(span.start, span.end)
      for (const [key, one] of own.spans) yield* truncateSteps(object, key, text, one, room)
      Object.defineProperty(value, name, { value: object, ...PLAIN_MEMBER })
    }
  }
  return value
}

/** Puts a member in an object: empty if there is no room. An object or list is read when it is asked for. */
function* truncateSteps(
  object: UnknownRecord,
  name: string,
  bytes: Buffer,
  { start, end, values }: MemberSpan,
  room: { bytes: number; values: number },
): WorkSteps<void> {
  const isList = bytes[start] === OPEN_BRACKET
  const text = bytes.subarray(start, end)
  const put = (value: unknown): unknown => {
    Object.defineProperty(object, name, { value, ...PLAIN_MEMBER })
    return value
  }
  if (!isList && bytes[start] !== OPEN_BRACE) put((yield* scanJsonSteps(text, 0)).value)
  else if (text.length > room.bytes || values > room.values) put(isList ? [] : {})
  else {
    room.bytes -= text.length
    room.values -= values
    const get = () => put(scanJson(text, 0).value)
    Object.defineProperty(object, name, { get, enumerable: true, configurable: true })
  }
}

const PLAIN_MEMBER = { writable: true, enumerable: true, configurable: true }

interface ListSelector {
  readonly member: string
  readonly prefix: string
}

/** Lists the items of a message's result; null: no list. Throws as {@link readLarge} does. */
export async function listItems(
  message: UpstreamMessage,
  list: ListSelector,
  asker: ThreadAsker,
): Promise<ListItems | null> {
  if (!isLargeMessage(message)) return itemsIn(message, list)
  return asked(callThreads.ask('listItems', { bytes: message.bytes, ...list }, asker), asker.signal)
}

/** {@link listItems} of a message that was not cut: items that are passed on as {@link soundItem} has them. */
export function itemsIn(message: UpstreamMessage, { member, prefix }: ListSelector): ListItems | null {
  const list = responseResult(message)?.[member]
  if (!Array.isArray(list)) return null
  const isPassedOn = LIST_ITEM_MEMBERS.has(member)
  const items = list
    .slice(0, MAX_LIST_ITEMS)
    .map((item: unknown) => (isPassedOn ? soundItem(item, member) : item))
  const names = items.map((item) => (isObject(item) && typeof item.name === 'string' ? item.name : null))
  const texts = items.map((item, index) => {
    if (!isObject(item)) return null
    const name = names[index] ?? null
    return JSON.stringify(prefix === '' || name === null ? item : { ...item, name: `${prefix}${name}` })
  })
  return { texts, names }
}

/** Reads the cursor of the next page, or null: servers also write null, an empty one, or no text. */
export const cursorOf = ({ nextCursor: cursor }: Readonly<Record<string, unknown>>): string | null =>
  typeof cursor === 'string' && cursor !== '' ? cursor : null

/** Writes a list of a result as JSON text of its sound items; null: no list. Throws the same. */
export async function knownList(
  message: UpstreamMessage,
  member: string,
  asker: ThreadAsker,
): Promise<string | null> {
  if (!isLargeMessage(message)) return knownListIn(message, member)
  return asked(callThreads.ask('knownList', { bytes: message.bytes, member }, asker), asker.signal)
}

export function knownListIn(message: UpstreamMessage, member: string): string | null {
  const list = responseResult(message)?.[member]
  // A list without items, as servers write it whose language has no other.
  if (list === null) return '[]'
  if (!Array.isArray(list) || !LIST_ITEM_MEMBERS.has(member)) return null
  return JSON.stringify(list.map((item) => soundItem(item, member)).filter((item) => item !== null))
}

async function asked<Made>(task: Promise<Made>, signal: AbortSignal): Promise<Made> {
  try {
    return await task
  } catch (error) {
    // A refusal says that it has no turn for it.
    if (signal.aborted || error instanceof Refusal || !(error instanceof Error)) throw error
    if (error instanceof TaskIncompleteError)
      throw mcpUpstreamFailure('a message takes too long to read', { cause: error })
    throw mcpUpstreamFailure(error.message.replace(FAILED, ''))
  }
}

const FAILED = /^mcp upstream failed: /
