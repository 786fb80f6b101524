import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject, type JsonObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { CallApproval } from '../../../plugins/audit/audit.ts'
import type { CallCommitments, ToolCall } from '../../../plugins/facts.ts'
import { OPEN_BRACE } from '../../../plugins/json-body/bytes.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { CallPermit } from '../../../plugins/permit.ts'
import type { Arrival, HangupSignal } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { MAX_INLINE_BYTES } from '../aside/aside.ts'
import type { HeaderParam } from '../aside/messages.ts'
import type { CallAccount } from '../gate/call-account.ts'
import { type ApprovalState, type CallDestination, callSubject } from '../gate/checks.ts'
import type { McpTarget } from '../gate/demand-now.ts'
import type { ResourcePath } from '../gate/endpoint.ts'
import type { LargeParams } from '../gate/large-params.ts'
import { headerParamHeaders } from '../pinning/header-params.ts'
import { encodeHeaderValue } from '../protocol/header-values.ts'
import {
  applyEdits,
  areAllKnown,
  type JsonText,
  type MemberEdits,
  readObject,
  scannedMember,
} from '../protocol/json-text.ts'
import type { ExactNames } from '../protocol/loose-name.ts'
import { ERROR_NAMES, messageEdits, RESULT_NAMES } from '../protocol/members.ts'
import type { McpMessage } from '../protocol/message.ts'
import { NAME_PARAM_BY_METHOD } from '../protocol/methods.ts'
import { META_KEYS, modernMeta, type ProtocolEra } from '../protocol/versions.ts'
import { GATEWAY_ERROR_CODES } from '../refusal.ts'
import type { CallerSession } from '../state/sessions.ts'
import type { UpstreamCall } from '../upstream/client.ts'
import { McpUpstreamError } from '../upstream/errors.ts'
import { isLargeMessage, type UpstreamMessage } from '../upstream/message.ts'
import type { SessionOwner } from '../upstream/sessions.ts'
import { editedBytes } from './large-answer.ts'

export interface DispatchFacts extends Arrival, ResourcePath, Pick<JsonBody, 'body' | 'scan'> {
  readonly granted: CallPermit<McpTarget>
  readonly commitments: CallCommitments
  readonly message: McpMessage
  readonly toolCall: ToolCall
  /** The upstream's own state of a multi round-trip request, if the caller sent one that is its own. */
  readonly requestState: string | null
  readonly approvalState: ApprovalState | null
  readonly approval: CallApproval | null
  readonly consentAsked: boolean
  /** The caller's account at the one server that it reaches; null: that takes none. */
  readonly account: CallAccount | null
  readonly headerParams: readonly HeaderParam[]
  /** Null if the message is so small that they are read here. */
  readonly largeParams: LargeParams | null
}

/**
 * Chooses the era in which an upstream is spoken to: the older one if it speaks both and the caller has a
 * session, for only so can the caller be asked. One that was never read is taken for a legacy one.
 */
export function upstreamEra(
  { era, server_facts: facts }: McpResource,
  session: CallerSession | null,
): ProtocolEra {
  return session !== null && facts?.legacy === true ? 'legacy' : (era ?? 'legacy')
}

/** Runs a call, and once more in the other era if the upstream speaks that one now and has done nothing. */
export async function inEitherEra<Done>(
  resource: McpResource,
  session: CallerSession | null,
  run: (as: McpResource) => Promise<Done>,
): Promise<Done> {
  try {
    return await run(resource)
  } catch (error) {
    if (!(error instanceof McpUpstreamError) || error.cure !== 'other_era') throw error
    const era = upstreamEra(resource, session) === 'modern' ? 'legacy' : 'modern'
    return run({ ...resource, era, server_facts: { ...resource.server_facts, legacy: false } })
  }
}

/** The capabilities that a caller of the stateless era states, in the forms that MCP has for them. */
const FORMS: Readonly<Record<string, readonly string[]>> = {
  elicitation: ['form', 'url'],
  sampling: ['tools', 'context'],
}

/** Picks what a caller of the stateless era says that it can be asked, which a server of the older one asks. */
function askableCapabilities({ era, meta }: McpMessage): JsonObject {
  const stated = meta[META_KEYS.capabilities]
  if (era !== 'modern' || !isObject(stated)) return NOTHING_ASKED
  const own = Object.entries(FORMS).flatMap(([name, forms]) => {
    const capability = stated[name]
    if (!isObject(capability)) return []
    const kept = forms.filter((form) => isObject(capability[form])).map((form) => [form, {}] as const)
    return [[name, Object.fromEntries(kept)] as const]
  })
  return own.length === 0 ? NOTHING_ASKED : Object.fromEntries(own)
}

const NOTHING_ASKED: JsonObject = {}

type CallerOnStream = Pick<DispatchFacts, 'message' | 'session' | 'requestState'>

/** Picks what a caller with a session can be asked on the stream of its call, in the forms of today. */
export function askedOnStream({ message, session, requestState }: CallerOnStream): JsonObject {
  const isOne = message.era === 'legacy' && session !== null && message.takesEvents && requestState === null
  if (!isOne || message.params.inputResponses !== undefined) return NOTHING_ASKED
  const { elicitation, sampling, roots } = session.capabilities
  return {
    ...(isObject(elicitation) && { elicitation: formsOf(elicitation) }),
    ...(isObject(sampling) && { sampling: isObject(sampling.tools) ? { tools: {} } : {} }),
    ...(isObject(roots) && { roots: {} }),
  }
}

/** Without a form named, a client has the one of the time before there were two. */
function formsOf(elicitation: UnknownRecord): JsonObject {
  const named = ['form', 'url'].filter((form) => isObject(elicitation[form]))
  return Object.fromEntries((named.length === 0 ? ['form'] : named).map((form) => [form, {}]))
}

export const canBeAskedOnStream = (caller: CallerOnStream): boolean =>
  Object.keys(askedOnStream(caller)).length > 0

/** Returns the client that an upstream session is opened for. Claims no roots and no tasks. */
export function upstreamClient(
  { session, message }: Pick<DispatchFacts, 'session' | 'message'>,
  era: ProtocolEra,
): UpstreamCall['client'] {
  if (session === null || era === 'modern')
    return {
      capabilities: era === 'legacy' ? askableCapabilities(message) : {},
      clientInfo: session?.clientInfo ?? null,
    }
  const { roots, tasks, ...capabilities } = session.capabilities
  return { capabilities, clientInfo: session.clientInfo }
}

/**
 * Returns the owner of the upstream session that a call goes by. Callers of the stateless era have no session
 * here: each set of things that they can be asked has one there.
 */
export function upstreamSessionOwner({
  granted,
  session,
  message,
  account,
}: Pick<DispatchFacts, 'granted' | 'session' | 'message' | 'account'>): SessionOwner {
  const own = account && { account }
  const owner = { principalId: granted.principal.id, sessionId: session?.id ?? null, ...own }
  const asked = session === null ? askableCapabilities(message) : NOTHING_ASKED
  return asked === NOTHING_ASKED ? owner : { ...owner, asked: JSON.stringify(asked) }
}

/** Makes a call as its upstream must see it: with its own names, and headers made from them. */
export function buildUpstreamCall(
  facts: DispatchFacts,
  to: CallDestination,
  hangup: HangupSignal,
): UpstreamCall {
  const era = upstreamEra(to.resource, facts.session)
  return {
    ...callOf(facts, to.resource, era),
    params: upstreamParams(facts, era, to.name),
    headers: era === 'modern' ? repeatingHeaders(facts, to) : {},
    hangup,
    traced: to.name,
  }
}

export const callOf = (facts: DispatchFacts, resource: McpResource, era: ProtocolEra) => ({
  permit: facts.granted,
  resource,
  era,
  owner: upstreamSessionOwner(facts),
  method: facts.message.method,
  headers: {},
  client: upstreamClient(facts, era),
  hangup: facts.hangup,
  held: facts.held,
  trace: facts.trace ?? null,
})

/** Makes the headers that repeat members of the params (MCP 2026-07-28). */
function repeatingHeaders(
  { message, toolCall, headerParams }: DispatchFacts,
  to: CallDestination,
): Record<string, string> {
  const subject = callSubject(message, to)
  return {
    ...(NAME_PARAM_BY_METHOD.has(message.method) &&
      subject !== null && { 'mcp-name': encodeHeaderValue(subject) }),
    ...headerParamHeaders(headerParams, toolCall.arguments ?? {}),
  }
}

type CallerMessage = Pick<
  DispatchFacts,
  'body' | 'scan' | 'largeParams' | 'approvalState' | 'consentAsked' | 'trace'
> &
  CallerOnStream

const EMPTY = readObject(Buffer.from('{}'))

function paramsText({ body, scan, message, largeParams }: CallerMessage): JsonText {
  if (largeParams) {
    const { text: bytes, spans: own } = largeParams
    return { bytes, spans: own, value: message.params, escapedNames: false }
  }
  return (
    scannedMember({ bytes: body, spans: scan.spans, objects: scan.objects }, 'params', message.params) ??
    EMPTY
  )
}

/** Writes the parameters as the upstream must see them, JSON text; null if there is nothing to send. */
function upstreamParams(call: CallerMessage, era: ProtocolEra, name: string | null): UpstreamCall['params'] {
  const { requestState } = call
  const params = paramsText(call)
  const edits = {
    ...call.message.edits,
    ...judgedEdit(params),
    ...eraEdit(params, era),
    // What the caller has sent back to this gateway is no answer to the upstream.
    ...((call.approvalState?.kind === 'asked' || call.consentAsked) && {
      ...{ inputResponses: null, requestState: null },
    }),
    ...nameEdit(params, call.message.method, name),
    ...(requestState !== null && era === 'modern' && { requestState: JSON.stringify(requestState) }),
    ...metaEdit(call, era),
  }
  if (isEmpty(edits)) return params === EMPTY ? null : params.bytes
  return params.bytes.length > MAX_INLINE_BYTES ? editedBytes(params, edits) : applyEdits(params, edits)
}

const NO_EDITS: MemberEdits = {}

const isEmpty = (edits: MemberEdits): boolean => Object.keys(edits).length === 0

/**
 * Leaves out members that the upstream's era does not have (MCP 2026-07-28, mrtr), and the wish for a task,
 * which this gateway does not declare (MCP 2025-11-25, tasks).
 */
function eraEdit({ value }: JsonText, era: ProtocolEra): MemberEdits {
  const { task, inputResponses, requestState } = value
  const hasRounds = era === 'legacy' && (inputResponses !== undefined || requestState !== undefined)
  if (task === undefined && !hasRounds) return NO_EDITS
  return {
    ...(task !== undefined && { task: null }),
    ...(hasRounds && { inputResponses: null, requestState: null }),
  }
}

function nameEdit({ value }: JsonText, method: string, name: string | null): MemberEdits {
  if (name === null) return NO_EDITS
  if (method !== 'completion/complete') return { name: JSON.stringify(name) }
  return { ref: JSON.stringify({ ...(isObject(value.ref) ? value.ref : {}), name }) }
}

// V8 may have read an escaped name as another one (nodejs/node#63785): the judged object is written then.
function judgedEdit({ escapedNames, value }: JsonText): MemberEdits {
  if (!escapedNames) return NO_EDITS
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, JSON.stringify(member)]))
}

/** Rewrites `_meta` for the upstream's era: a modern one demands its own. */
function metaEdit(caller: CallerMessage, era: ProtocolEra): MemberEdits {
  const { message, session } = caller
  if (era === message.era) return NO_EDITS
  if (era === 'modern') {
    const own = modernMeta(askedOnStream(caller), session?.clientInfo ?? undefined)
    return { _meta: JSON.stringify({ ...message.meta, ...own, ...caller.trace?.upcoming() }) }
  }
  const kept = Object.entries(message.meta).filter(([key]) => !key.startsWith('io.modelcontextprotocol/'))
  if (kept.length === 0) return { _meta: null }
  return { _meta: JSON.stringify({ ...Object.fromEntries(kept), ...caller.trace?.upcoming() }) }
}

/** Methods whose results say how long they may be kept (MCP 2026-07-28, caching). */
const CACHEABLE: ReadonlySet<string> = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
])

interface ResultRewriteOptions {
  readonly method: string
  readonly caller: ProtocolEra
  readonly upstream: ProtocolEra
  readonly edits?: MemberEdits
  readonly seal: (state: string) => string
}

/**
 * Writes an upstream's result in the caller's era, JSON text. None is marked as public, and an upstream's
 * state is bound to the caller. Refuses with `mcp_failed` a result that the caller's era cannot express, and
 * one that some client reads otherwise than it is read here.
 */
export function rewriteResult(
  result: JsonText,
  { method, caller, upstream, edits: given = NO_EDITS, seal }: ResultRewriteOptions,
): Buffer {
  const { value } = result
  checkNames(result, RESULT_NAMES)
  const incomplete = value.resultType === 'input_required'
  if (caller === 'legacy') {
    if (!incomplete) return bytesWithEdits(result, { ...given, ...olderContent(result, method) })
    throw new Refusal('mcp_failed', {
      message:
        'The MCP server asks its caller something, and this client cannot be asked: use one that initializes, declares elicitation, sampling or roots there, and takes event streams; or one of 2026-07-28.',
    })
  }
  const state = value.requestState ?? null
  if (incomplete && state !== null && typeof state !== 'string') {
    // It could not be bound to the caller.
    throw new Refusal('mcp_failed', {
      message: 'The MCP server gave a state that is not text. Tell the operator.',
    })
  }
  const edits: MemberEdits = {
    ...given,
    ...(upstream === 'legacy' && value.resultType === undefined && { resultType: '"complete"' }),
    ...(CACHEABLE.has(method) && !incomplete && cacheEdits(value)),
    ...(incomplete && typeof state === 'string' && { requestState: JSON.stringify(seal(state)) }),
  }
  return bytesWithEdits(result, edits)
}

function checkNames({ spans }: JsonText, names: ExactNames): void {
  if (areAllKnown(spans.keys(), names.exact) || !names.areMistaken(spans.keys())) return
  throw new Refusal('mcp_failed', {
    message: 'The answer of the MCP server can be read in two ways. Tell the operator.',
  })
}

export function rewriteMessage(message: UpstreamMessage, edits: MemberEdits = NO_EDITS): Buffer {
  const noParams = message.value.params === null && { params: null }
  const all = { ...messageEdits(message.spans.keys()), ...noParams, ...edits }
  if (isEmpty(all)) return message.bytes
  return isLargeMessage(message) ? editedBytes(message, all) : Buffer.from(applyEdits(message, all))
}

function bytesWithEdits(object: JsonText, edits: MemberEdits): Buffer {
  if (isEmpty(edits)) return object.bytes
  return object.bytes.length > MAX_INLINE_BYTES
    ? editedBytes(object, edits)
    : Buffer.from(applyEdits(object, edits))
}

/** Bytes. Longer structured content is not written once more as text: that would hold the loop. */
const MAX_STRUCTURED_TEXT = 262_144

/**
 * Leaves out structured content that is no object, which the older revisions do not have: their clients refuse
 * the whole result. If nothing else was said, it is said as text.
 */
function olderContent({ bytes, spans }: JsonText, method: string): MemberEdits {
  const structured = method === 'tools/call' ? spans.get('structuredContent') : undefined
  if (!structured || bytes[structured.start] === OPEN_BRACE) return NO_EDITS
  const content = spans.get('content')
  if (content && !EMPTY_LIST.test(bytes.toString('latin1', content.start, content.start + LONG_EMPTY_LIST)))
    return { structuredContent: null }
  const length = structured.end - structured.start
  const text =
    length > MAX_STRUCTURED_TEXT
      ? `The tool gave ${length} bytes of structured content, too many to be written as text: use a client of 2026-07-28.`
      : bytes.toString('utf8', structured.start, structured.end)
  return { structuredContent: null, content: JSON.stringify([{ type: 'text', text }]) }
}

const EMPTY_LIST = /^\[\s*\]/
/** Bytes. An empty list has no more blanks in it. */
const LONG_EMPTY_LIST = 64

const cacheEdits = ({ ttlMs }: JsonText['value']): MemberEdits => ({
  ...(ttlMs === undefined && { ttlMs: '0' }),
  // Also if the upstream says nothing: some clients take that for public.
  cacheScope: '"private"',
})

/** Bytes. More of an error with a code of ours is left out. */
const MAX_ERROR_DATA = 16_384

/**
 * Writes an upstream's JSON-RPC error for the caller, JSON text: its own, unless it has one of our codes.
 */
export function rewriteError(error: JsonText): Buffer {
  const { code, message } = error.value
  checkNames(error, ERROR_NAMES)
  if (!GATEWAY_ERROR_CODES.has(code)) return bytesWithEdits(error, {})
  const data = error.spans.get('data')
  const small =
    data && data.end - data.start <= MAX_ERROR_DATA ? error.bytes.subarray(data.start, data.end) : null
  throw new Refusal('mcp_failed', {
    detail: {
      upstream_error: {
        code: Number(code),
        message: String(message).slice(0, 1024),
        ...(small && { data: JSON.parse(small.toString()) as unknown }),
      },
    },
  })
}
