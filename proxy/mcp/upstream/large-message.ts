import { isObject } from '../../../db/support/json.ts'
import { TaskIncompleteError } from '../../../db/support/thread.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { quotesSecret, type SecretTraces } from '../../../plugins/secrets/traces.ts'
import { callThreads } from '../aside/aside.ts'
import type { ListItems, TruncatedMessage } from '../aside/messages.ts'
import { type JsonText, measureJson, memberObject } from '../protocol/json-text.ts'
import { LIST_ITEM_MEMBERS } from '../protocol/known-members.ts'
import { soundItem } from '../protocol/sound-items.ts'
import { mcpUpstreamFailure } from './errors.ts'
import { readEvent, readMessage, responseResult, type UpstreamMessage } from './message.ts'

const LOOKED_INTO = ['result', 'error', 'params'] as const
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

interface LargeReadOptions extends ThreadAsker {
  readonly traces: SecretTraces
}

/**
 * Reads a large message on a thread. Objects and lists in its `value` are emptied if they are not at the top,
 * or the top of its result, error or params, and together larger than {@link MAX_KEPT}. Throws
 * McpUpstreamError also if it has more than 1,000 members there, holds one of the traces, or takes too long
 * to read.
 */
export async function readLarge(bytes: Buffer, options: LargeReadOptions): Promise<UpstreamMessage> {
  const message = await readLargeEvent(bytes, { ...options, requestId: null })
  if (message === null) throw new Error('a message was passed over that is not of a stream')
  return message
}

/** Reads a large event; null as {@link readEvent} has it. Else does what {@link readLarge} does. */
export async function readLargeEvent(
  bytes: Buffer,
  { key, signal, traces, requestId }: LargeReadOptions & { readonly requestId: number | null },
): Promise<UpstreamMessage | null> {
  const read = await asked(
    callThreads.ask('readMessage', { bytes, traces, requestId }, { key, signal }),
    signal,
  )
  if (read === null) return null
  const { echo, value, spans, inner } = read
  if (echo) throw mcpUpstreamFailure('a message holds the secret of our credentials')
  const objects = new Map<string, JsonText>()
  for (const [name, scan] of inner) {
    const { start, end } = spans.get(name) ?? { start: 0, end: 0 }
    // Proven by truncateMessage: those alone are objects in it.
    const own = value[name] as JsonText['value']
    objects.set(name, { ...scan, bytes: bytes.subarray(start, end), value: own })
  }
  return { bytes, value, spans, objects }
}

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
  if (message.objects === null) return itemsIn(message, list)
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
  if (message.objects === null) return knownListIn(message, member)
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

/** Reads a message, and cuts the large parts out of its value. For a thread. */
export function truncateMessage(
  bytes: Buffer,
  traces: SecretTraces,
  requestId: number | null = null,
): TruncatedMessage | null {
  const message = requestId === null ? readMessage(bytes) : readEvent(bytes, requestId)
  if (message === null) return null
  const inner = new Map<string, Pick<JsonText, 'spans' | 'escapedNames'>>()
  for (const name of LOOKED_INTO) {
    const object = memberObject(message, name)
    if (object) inner.set(name, { spans: object.spans, escapedNames: object.escapedNames })
  }
  if ([message, ...inner.values()].some(({ spans }) => spans.size > MAX_SPANS)) {
    throw mcpUpstreamFailure('a message has too many members')
  }
  const room: MessageBudget = { ...MAX_KEPT }
  const value = truncateMembers(message, room, (name) => {
    const scan = inner.get(name)
    const own = message.value[name]
    return scan && truncateMembers({ value: own as JsonText['value'], spans: scan.spans }, room)
  })
  const echo = quotesSecret(traces, bytes)
  return { echo, value, spans: message.spans, inner }
}

interface MessageBudget {
  bytes: number
  values: number
}

/** Copies an object, with `instead`'s value of a member, or an emptied one if there is no room. */
function truncateMembers(
  { value, spans }: Pick<JsonText, 'value' | 'spans'>,
  room: MessageBudget,
  instead: (name: string) => object | undefined = () => undefined,
): Record<string, unknown> {
  const members = Object.entries(value).map(([name, member]) => {
    const { start, end } = spans.get(name) ?? { start: 0, end: 0 }
    return [name, instead(name) ?? truncateValue(member, end - start, room)] as const
  })
  return Object.fromEntries(members)
}

function truncateValue(member: unknown, length: number, room: MessageBudget): unknown {
  if (typeof member !== 'object' || member === null) return member
  const values = length > room.bytes ? room.values + 1 : measureJson(member, room.values).values
  if (values > room.values) return Array.isArray(member) ? [] : {}
  room.bytes -= length
  room.values -= values
  return member
}
