import { WatchedNames } from '../../../plugins/json-body/scan.ts'
import type { ApiWire } from '../dialects/dialect.ts'

/** The members by which a request of a wire names what its provider keeps. */
export interface StateNames {
  /** Members whose text, or each text of a list of them, is an id, wherever they stand. */
  readonly ids: readonly string[]
  /** The same, of the outermost members alone. */
  readonly outer: readonly string[]
  /** Members that are an id, or an object with one as its `id`. */
  readonly holders: readonly string[]
  /** Members that are an object with an `id`, and no id themselves. */
  readonly objects: readonly string[]
  /** Members with content of the caller's own making: nothing in them is looked at. */
  readonly opaque: readonly string[]
  /** Members whose own members have names of the caller's: what stands in these is looked at. */
  readonly free: readonly string[]
  /** The member that lists items with ids; null: the wire has none. */
  readonly items: string | null
}

/** The data of the caller's own functions and labels, of each wire. */
const OPAQUE = ['arguments', 'metadata', 'parameters', 'schema'] as const
const FILES = ['file_id', 'file_ids', 'container_id'] as const

/**
 * Each member of the SDKs' requests that names what a provider keeps. An id is one wherever it stands but in what is
 * opaque, so that a new place of a known name is found too.
 */
export const STATE_NAMES: Readonly<Record<ApiWire, StateNames>> = {
  chat: {
    ids: FILES,
    // Of routers that tell such a call by the Responses API.
    outer: ['previous_response_id'],
    holders: ['conversation'],
    objects: ['audio', 'voice'],
    opaque: [...OPAQUE, 'annotations', 'chat_template_kwargs', 'json_schema'],
    free: [],
    items: null,
  },
  responses: {
    ids: [...FILES, 'comparison_response_id', 'skill_id', 'tunnel_id', 'vector_store_ids'],
    // The last is vLLM's: it chooses the id of what will be stored, which may be another's.
    outer: ['previous_response_id', 'request_id'],
    holders: ['container', 'conversation', 'prompt'],
    objects: ['voice'],
    opaque: [
      ...[...OPAQUE, 'annotations', 'client_metadata', 'headers', 'input_schema', 'logprobs'],
      ...['output_schema', 'results'],
    ],
    free: ['variables'],
    items: 'input',
  },
  messages: {
    ids: [...FILES, 'previous_message_id', 'skill_id'],
    outer: [],
    holders: ['container'],
    objects: [],
    opaque: [...OPAQUE, 'citations', 'input', 'input_examples', 'input_schema'],
    free: [],
    items: null,
  },
}

/**
 * The kinds of items of a Responses request, each with the member that holds its content; null: none does. An item
 * without its content is read by its `id` from what the provider keeps, and so is one of another kind.
 */
export const ITEM_CONTENT: Readonly<Record<string, string | null>> = {
  message: 'content',
  function_call: 'arguments',
  function_call_output: 'output',
  custom_tool_call: 'input',
  custom_tool_call_output: 'output',
  reasoning: 'encrypted_content',
  compaction: 'encrypted_content',
  computer_call: 'call_id',
  computer_call_output: 'output',
  local_shell_call: 'action',
  local_shell_call_output: 'output',
  shell_call: 'action',
  shell_call_output: 'output',
  apply_patch_call: 'operation',
  apply_patch_call_output: 'status',
  image_generation_call: 'result',
  file_search_call: 'results',
  code_interpreter_call: 'outputs',
  web_search_call: null,
  item_reference: null,
  mcp_list_tools: 'tools',
  mcp_call: 'arguments',
  mcp_approval_request: 'arguments',
  mcp_approval_response: 'approve',
  tool_search_call: 'arguments',
  tool_search_output: 'tools',
  additional_tools: 'tools',
  configuration_update: 'type',
  compaction_trigger: 'type',
  program: 'code',
  program_output: 'result',
}

/** The names by which the scan of a body tells that it may name something. */
export const WATCHED_NAMES: Readonly<Record<ApiWire, WatchedNames>> = {
  chat: watchedOf(STATE_NAMES.chat),
  responses: watchedOf(STATE_NAMES.responses),
  messages: watchedOf(STATE_NAMES.messages),
}

/** The names that are read of a request that may name something: no text is made of another one. */
export const READ_NAMES: Readonly<Record<ApiWire, WatchedNames>> = {
  chat: readOf(STATE_NAMES.chat),
  responses: readOf(STATE_NAMES.responses),
  messages: readOf(STATE_NAMES.messages),
}

function watchedOf({ ids, outer, holders, objects, items }: StateNames): WatchedNames {
  return new WatchedNames([...ids, ...outer, ...holders, ...objects, ...(items === null ? [] : ['id'])])
}

/** The kinds of an answer's items that a later request may have without their content. */
const READ_BY_ID: ReadonlySet<string> = new Set([
  'reasoning',
  'image_generation_call',
  'file_search_call',
  'code_interpreter_call',
  'web_search_call',
])

/** Tells if an item of an answer is one that a later request may name by its id alone. */
export const isReadById = (type: string): boolean =>
  READ_BY_ID.has(type) || !Object.hasOwn(ITEM_CONTENT, type)

/** Returns the names that are read of a body to find what others name. */
export function readOf({ ids, outer, holders, objects, opaque, free, items }: StateNames): WatchedNames {
  const contents =
    items === null ? [] : [items, ...Object.values(ITEM_CONTENT).filter((name) => name !== null)]
  const names = [...ids, ...outer, ...holders, ...objects, ...opaque, ...free, ...contents, 'id', 'type']
  return new WatchedNames([...new Set(names)])
}
