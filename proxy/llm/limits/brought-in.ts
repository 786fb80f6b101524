import { isObject } from '../../../db/support/json.ts'
import type { HangupSignal } from '../../../plugins/arrival.ts'
import { type BodyScan, foldedName, type JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { WatchedNames } from '../../../plugins/json-body/scan.ts'
import type { BroughtIn } from '../../../plugins/limits/estimate.ts'
import { runPromptly } from '../../../plugins/turns.ts'
import type { ApiWire } from '../dialects/dialect.ts'
import type { LlmEndpoint } from '../dialects/registry.ts'
import { type LlmTarget, shownName } from '../routing.ts'
import { MAX_NAMED_IDS, type NamedId, namedTextsSteps } from '../state/named-ids.ts'
import { readOf, STATE_NAMES, type StateNames } from '../state/names.ts'

type BoundedBody = Pick<JsonBody, 'body' | 'json'> & {
  readonly scan: Pick<BodyScan, 'repeated'>
  readonly target: Pick<LlmTarget, 'endpoint'>
  readonly hangup: HangupSignal
}

/** The members by which APIs bound an answer. Tokens. */
export const BOUNDS = ['max_output_tokens', 'max_completion_tokens', 'max_tokens'] as const

/** Members after which the provider reads or writes more than once, or more than is asked for. */
const ENDLESS = ['container', 'mcp_servers', 'prediction', 'web_search_options'] as const

/** The outermost members that a strict limit goes by: of another spelling of one a provider may take that. */
const RELIED_ON: ReadonlySet<string> = new Set([
  ...[...BOUNDS, ...ENDLESS, 'best_of', 'context_management', 'n', 'stream_options', 'tools'],
  ...['inference_geo', 'service_tier', 'speed'],
])

/** Tools that the caller runs; the provider runs the others, and reads what they find. */
const CALLERS_TOOL =
  /^(?:function|custom|local_shell|apply_patch|(?:bash|text_editor|computer|memory)_\d{8})$/

/**
 * Finds what a call brings in that its bytes do not bound: what its provider keeps or fetches, documents, pictures, and
 * members without any bound. Asked for strict limits alone: it reads the whole body. Does NOT look into what the caller's
 * own functions take and give.
 */
export function broughtInBy(facts: BoundedBody): BroughtIn | Promise<BroughtIn> {
  const { json, body, hangup, target } = facts
  const { wire, counts } = target.endpoint
  const unbounded = relied(facts) ?? endless(json, target.endpoint)
  const names = NAMES[wire ?? counts ?? 'chat']
  if (unbounded !== null) return { unbounded: shownName(unbounded), whole: null, pictures: 0 }
  const found = runPromptly(namedTextsSteps(body, names.names, names.read), hangup)
  return found instanceof Promise ? found.then(summed) : summed(found)
}

/** Finds a member that stands twice, or in another spelling, so that nobody knows which one a provider takes. */
function relied({ json, scan }: BoundedBody): string | null {
  const isOther = (name: string): boolean =>
    RELIED_ON.has(name) ? scan.repeated.has(name) : RELIED_ON.has(foldedName(name))
  return Object.keys(json).find(isOther) ?? null
}

function endless(json: JsonBody['json'], { wire }: Pick<LlmEndpoint, 'wire'>): string | null {
  const isSet = (name: string): boolean => json[name] !== undefined && json[name] !== null
  const { tools, stream_options: asked, context_management: management } = json
  const isProviders = (tool: unknown): boolean =>
    isObject(tool) && typeof tool.type === 'string' && !CALLERS_TOOL.test(tool.type)
  const member = ENDLESS.find(isSet)
  if (member !== undefined) return member
  // What is asked of the model by the provider's own prompt: its tools and its answer are not known.
  if (wire === 'responses' && isSet('prompt')) return 'prompt'
  if (Array.isArray(tools) && tools.some(isProviders)) return 'tools'
  if (isSet('context_management') && JSON.stringify(management).includes('compact'))
    return 'context_management'
  const isUntold = wire === 'chat' && json.stream === true
  return isUntold && !(isObject(asked) && asked.include_usage === true) ? 'stream_options' : null
}

/** Members, at whatever depth, with what is read elsewhere, or with a medium. */
const MEDIA = [
  'audio_url',
  'document_url',
  'file_data',
  'file_url',
  'image_url',
  'media_type',
  'url',
  'video_url',
]

const namesOf = (wire: ApiWire, further: Partial<Pick<StateNames, 'ids' | 'opaque'>>) => {
  const state = STATE_NAMES[wire]
  const names: StateNames = {
    ...state,
    ids: [...state.ids, ...MEDIA, ...(further.ids ?? [])],
    opaque: [...state.opaque, ...(further.opaque ?? [])],
  }
  return { names, read: readOf(names) }
}

/** The names to look for, by the API of the call; other paths have none of them in their own words. */
const NAMES: Readonly<Record<ApiWire, { readonly names: StateNames; readonly read: WatchedNames }>> = {
  chat: namesOf('chat', {}),
  // A picture that was made before is the text of `result`; pages that were visited are labels.
  responses: namesOf('responses', { ids: ['result'], opaque: ['action', 'sources'] }),
  messages: namesOf('messages', {}),
}

const PICTURE = /^(?:data:)?image\//
const LIKE_TEXT = /^text\//

/** Counts pictures that stand in the body, and finds the first thing that is not in it. */
function summed(found: readonly NamedId[]): BroughtIn {
  const tooMany = found[MAX_NAMED_IDS]
  if (tooMany) return { unbounded: null, whole: shownName(tooMany.at), pictures: 0 }
  const pictures = found.filter(isPicture)
  const whole = found.find((one) => !isPicture(one) && !isText(one))
  return { unbounded: null, whole: whole ? shownName(whole.at) : null, pictures: pictures.length }
}

const lastName = ({ at }: NamedId): string => at.slice(at.lastIndexOf('.') + 1)

const isPicture = (one: NamedId): boolean => lastName(one) === 'result' || PICTURE.test(one.id)

const isText = (one: NamedId): boolean => lastName(one) === 'media_type' && LIKE_TEXT.test(one.id)
