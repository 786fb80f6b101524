import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { ApiWire } from '../dialects/dialect.ts'
import type { PickedMembers } from '../dialects/member-picker.ts'
import { isReadById } from './names.ts'

/** The ids that one answer may state. An answer of a vendor's own states some ten. */
export const MAX_STATED_IDS = 200
/** Characters. A longer text is no id. */
const MAX_ID = 256

/** The way in which a wire's answers state the ids of what is kept. */
export interface StatedNames {
  /** The outermost members of a request without any of which its answer states nothing. Null: it may in any case. */
  readonly askedBy: readonly string[] | null
  /** The members that are read, of an answer or event that is too long to be read whole. */
  readonly picked: PickedMembers
  /** Lists what an answer, or one event of it, states: what the provider itself has written, never the model. */
  readonly idsIn: (root: UnknownRecord, asked: AskedState) => Iterable<unknown>
}

/** The request that an answer is to. */
export interface AskedState {
  /** Tells if it has an outermost member of a name. */
  readonly has: (name: string) => boolean
  /** False: it asks the provider to store nothing. */
  readonly stores: boolean
}

const ANNOTATIONS = { container_id: null, file_id: null }
const ITEM = {
  ...{ id: null, type: null, container_id: null, environment: { container_id: null } },
  content: { annotations: ANNOTATIONS },
}
const RESPONSE = { id: null, store: null, conversation: { id: null }, output: ITEM }
const AUDIO = { audio: { id: null } }
const BLOCK = { file_id: null, content: { file_id: null, content: { file_id: null } } }
const MESSAGE = { id: null, container: { id: null }, content: BLOCK }

export const STATED_NAMES: Readonly<Record<ApiWire, StatedNames>> = {
  chat: { askedBy: ['audio'], picked: { choices: { message: AUDIO, delta: AUDIO } }, idsIn: idsOfChat },
  responses: {
    askedBy: null,
    picked: { ...RESPONSE, response: RESPONSE, item: ITEM, type: null },
    idsIn: idsOfResponses,
  },
  messages: {
    askedBy: ['container', 'diagnostics', 'thread', 'tools'],
    picked: { ...MESSAGE, message: MESSAGE, delta: { container: { id: null } }, content_block: BLOCK },
    idsIn: idsOfMessages,
  },
}

/** Lists the ids among what an answer states, as far as they may be remembered. */
export function statedIds({ idsIn }: StatedNames, root: UnknownRecord, asked: AskedState): readonly string[] {
  const ids = new Set<string>()
  for (const id of idsIn(root, asked)) {
    if (typeof id === 'string' && id !== '' && id.length <= MAX_ID) ids.add(id)
    if (ids.size === MAX_STATED_IDS) break
  }
  return [...ids]
}

function* idsOfChat({ choices }: UnknownRecord): Iterable<unknown> {
  for (const choice of objectsIn(choices)) {
    for (const said of [choice.message, choice.delta]) {
      if (isObject(said) && isObject(said.audio)) yield said.audio.id
    }
  }
}

function* idsOfResponses(root: UnknownRecord, { stores }: AskedState): Iterable<unknown> {
  const { type, response, item } = root
  if (isObject(response)) yield* idsOfResponse(response, stores)
  // An event has a type, an answer has none.
  else if (typeof type !== 'string') yield* idsOfResponse(root, stores)
  if (type === 'response.output_item.done') yield* idsOfItem(item, stores)
}

function* idsOfResponse(response: UnknownRecord, stores: boolean): Iterable<unknown> {
  const { id, store = stores, conversation, output } = response
  const isStored = store !== false
  if (isStored) yield id
  if (isObject(conversation)) yield conversation.id
  for (const item of objectsIn(output)) yield* idsOfItem(item, isStored)
}

/** Lists the id of an item that a later request may refer to, or have without its content, and those in it. */
function* idsOfItem(item: unknown, isStored: boolean): Iterable<unknown> {
  if (!isObject(item)) return
  const { id, type, container_id: container, environment, encrypted_content: sealed, content } = item
  if (isStored || (typeof type === 'string' && isReadById(type) && (sealed ?? '') === '')) yield id
  yield container
  if (isObject(environment)) yield environment.container_id
  for (const part of objectsIn(content))
    for (const { container_id: place, file_id: file } of objectsIn(part.annotations)) yield* [place, file]
}

function* idsOfMessages(root: UnknownRecord, asked: AskedState): Iterable<unknown> {
  const { message, delta, content_block: block } = root
  for (const holder of [root, message, delta]) {
    if (isObject(holder) && isObject(holder.container)) yield holder.container.id
    if (isObject(holder)) yield* filesOf(holder.content)
  }
  yield* filesOf([block])
  // Of other calls nothing is kept that a later one could name.
  if (!asked.has('thread') && !asked.has('diagnostics')) return
  if (isObject(message)) yield message.id
  else if (root.type === 'message') yield root.id
}

/** Lists the files that the provider's own tools have made: the input of a caller's tool is the model's. */
function* filesOf(blocks: unknown): Iterable<unknown> {
  for (const { type, file_id: file, content } of objectsIn(blocks)) {
    if (type === 'container_upload') yield file
    if (!/^\w*code_execution_tool_result$/.test(String(type)) || !isObject(content)) continue
    for (const made of objectsIn(content.content)) yield made.file_id
  }
}

function* objectsIn(list: unknown): Iterable<UnknownRecord> {
  if (Array.isArray(list)) for (const one of list as readonly unknown[]) if (isObject(one)) yield one
}
