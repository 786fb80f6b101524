import { isObject } from '../../../db/support/json.ts'
import type { TracedCall, TracedRequest } from '../../../plugins/call-trace.ts'
import type { RemoteParent } from './context.ts'
import { type AttributeMap, attributesText, MAX_ATTRIBUTE, nanoseconds } from './encode.ts'
import { EXECUTE_TOOL, GENAI_OPERATIONS, ATTRIBUTES as NAME, TOOL_ERROR } from './names.ts'

/** One request to an upstream. Times: ms since the epoch. */
export interface SpannedAttempt {
  readonly request: TracedRequest
  readonly spanId: string
  readonly beganMs: number
  /** Null: it ended with its call. */
  endedMs: number | null
  status: number | null
  /** Why it gave no answer; null: it has, as far as is known. */
  reason: string | null
}

export interface SpannedCall {
  readonly call: TracedCall
  readonly surface: 'llm' | 'mcp'
  readonly beganMs: number
  readonly endedMs: number
  readonly attempts: readonly SpannedAttempt[]
}

/** The ids of a call's span, lower-case hex. `parentId`: null for the first one of its trace. */
export interface CallSpanIds {
  readonly traceId: string
  readonly spanId: string
  readonly parentId: string | null
}

const KINDS = { server: 2, client: 3 } as const
const STATUS_ERROR = 2

interface SpanParts {
  readonly name: string
  readonly kind: keyof typeof KINDS
  readonly beganMs: number
  readonly endedMs: number
  readonly attributes: readonly AttributeMap[]
  readonly errorType: string | null
  readonly link?: RemoteParent | null
}

/** Put together as text: each call makes several, and an object of all would be thrice as dear. */
function spanText(
  { traceId, spanId, parentId }: CallSpanIds,
  { name, kind, beganMs, endedMs, attributes, errorType, link = null }: SpanParts,
): string {
  const parent = parentId === null ? '' : `"parentSpanId":"${parentId}",`
  const links = link ? `,"links":[{"traceId":"${link.traceId}","spanId":"${link.spanId}"}]` : ''
  const status = errorType === null ? '' : `,"status":{"code":${STATUS_ERROR}}`
  const error = errorType === null ? NO_ATTRIBUTES : { [NAME.errorType]: errorType }
  return `{"traceId":"${traceId}","spanId":"${spanId}",${parent}"name":${JSON.stringify(name.slice(0, MAX_ATTRIBUTE).toWellFormed())},"kind":${KINDS[kind]},"startTimeUnixNano":"${nanoseconds(beganMs)}","endTimeUnixNano":"${nanoseconds(Math.max(beganMs, endedMs))}","attributes":${attributesText(...attributes, error)}${links}${status}}`
}

const NO_ATTRIBUTES: AttributeMap = {}

/** Writes the span of a call, JSON text. */
export const callSpan = (
  ended: SpannedCall,
  ids: CallSpanIds & { readonly link: RemoteParent | null },
): string =>
  spanText(ids, {
    name: nameOf(ended),
    kind: 'server',
    beganMs: ended.beganMs,
    endedMs: ended.endedMs,
    attributes: [...kindAttributes(ended), ownAttributes(ended.call), contentAttributes(ended.call)],
    errorType: errorTypeOf(ended.call),
    link: ids.link,
  })

/** Writes the span of a request to an upstream, JSON text, a child of its call's. */
export const attemptSpan = (
  ended: SpannedCall,
  attempt: SpannedAttempt,
  { traceId, spanId }: CallSpanIds,
): string =>
  spanText(
    { traceId, spanId: attempt.spanId, parentId: spanId },
    {
      name: attemptName(ended, attempt),
      kind: 'client',
      beganMs: attempt.beganMs,
      endedMs: attempt.endedMs ?? ended.endedMs,
      attributes: [attemptAttributes(ended, attempt), addressOf(attempt.request)],
      errorType: attemptError(ended, attempt),
    },
  )

/** Names what the caller asks for, in the words of the conventions; null if they have none: a list of models. */
export function genaiOperationOf({ call: { route, facts }, surface }: SpannedCall): string | null {
  if (surface === 'mcp') return facts.message?.method === 'tools/call' ? EXECUTE_TOOL : null
  if (facts.method !== 'POST') return null
  const end = route.replace(/^\/v1\//, '')
  return GENAI_OPERATIONS[end] ?? end
}

/** The names of tools and models that were refused are the caller's, and any number: they name no span. */
function nameOf(ended: SpannedCall): string {
  const { call, surface } = ended
  const { facts } = call
  const subject = call.allowed ? (surface === 'mcp' ? facts.call?.tool : facts.call?.model) : null
  const verb = surface === 'mcp' ? methodOf(call) : genaiOperationOf(ended)
  return [verb ?? `${facts.method} ${call.route}`, subject].filter((part) => part).join(' ')
}

/** An unknown method is no name either. */
const methodOf = ({ facts: { message } }: TracedCall): string | null =>
  message && message.method !== '' ? message.method : null

function kindAttributes(ended: SpannedCall): readonly AttributeMap[] {
  const { call, surface } = ended
  const { facts } = call
  const common = { [NAME.operation]: genaiOperationOf(ended), [NAME.httpStatus]: call.status }
  if (surface === 'llm') return [common, modelAttributes(call)]
  const ofMessage = {
    [NAME.mcpMethod]: methodOf(call),
    [NAME.mcpVersion]: facts.message?.version,
    [NAME.mcpSession]: call.session,
    [NAME.rpcId]: printableId(facts.message?.id ?? null),
    [NAME.rpcStatus]: rpcStatusOf(call),
    [NAME.tool]: facts.call?.tool,
    [NAME.upstream]: call.upstream,
  }
  return [common, ofMessage]
}

function modelAttributes({ facts, detail, upstream }: TracedCall): AttributeMap {
  const tokens = isObject(detail.tokens) ? detail.tokens : {}
  return {
    [NAME.provider]: upstream,
    [NAME.requestModel]: facts.call?.model,
    [NAME.responseModel]: textIn(detail.upstream_model),
    [NAME.inputTokens]: countIn(tokens.input),
    [NAME.outputTokens]: countIn(tokens.output),
    [NAME.cacheReadTokens]: countIn(tokens.cached),
    [NAME.cacheWriteTokens]: countIn(tokens.cache_write),
  }
}

const ownAttributes = (call: TracedCall): AttributeMap => ({
  [NAME.user]: call.facts.principal?.ref,
  [NAME.requestId]: call.facts.id,
  [NAME.stream]: call.receipt?.stream,
  [NAME.seq]: call.receipt?.seq,
  [NAME.decision]: call.allowed ? 'allowed' : 'denied',
  [NAME.reason]: call.reason,
  [NAME.refusedBy]: call.allowed ? null : call.by,
  [NAME.capability]: call.facts.demand?.demanded.join(' ') || null,
  [NAME.bound]: call.facts.principal && (call.facts.grant?.bound ?? 'certificate'),
})

/** Verdicts of a check of content, never what was found. */
function contentAttributes({ allowed, facts, detail: { content } }: TracedCall): AttributeMap {
  const judged = isObject(content) ? textIn(content.verdict) : null
  return {
    [NAME.contentRequest]: facts.content?.verdict ?? (allowed ? null : judged),
    [NAME.contentAnswer]: allowed ? judged : null,
  }
}

/** The id of a JSON-RPC request is its caller's, and may be any text: one that is more than an id is left out. */
function printableId(id: string | null): string | null {
  const [, plain = null] = /^"?([\w.:-]{1,64})"?$/.exec(id ?? '') ?? []
  return plain
}

const rpcStatusOf = ({ detail, rpcCode }: TracedCall): string | null => {
  const code = rpcCode ?? countIn(detail.error_code)
  return code === null ? null : String(code)
}

/** Names the class of failure a call ended with; null: it has not failed. */
export function errorTypeOf(call: TracedCall): string | null {
  if (call.reason !== null) return call.reason
  if (call.detail.isError === true) return TOOL_ERROR
  const code = rpcStatusOf(call)
  if (code !== null) return code
  if (call.status >= 400) return String(call.status)
  return call.result === 'success' || call.result === 'refused' ? null : call.result
}

/** One that was not ended by itself ended as its call did. */
export const attemptError = (
  { call }: SpannedCall,
  { endedMs, reason, status }: SpannedAttempt,
): string | null =>
  reason ??
  (status !== null && status >= 400 ? String(status) : null) ??
  (endedMs === null ? errorTypeOf(call) : null)

function attemptName(ended: SpannedCall, { request: { method, target, model } }: SpannedAttempt): string {
  const parts = ended.surface === 'mcp' ? [method, target] : [genaiOperationOf(ended), model]
  return parts.filter((part) => part).join(' ') || 'request'
}

function attemptAttributes(ended: SpannedCall, { request, status }: SpannedAttempt): AttributeMap {
  const { upstream, model, method, target, resent = 0 } = request
  return {
    [NAME.operation]: genaiOperationOf(ended),
    ...(ended.surface === 'llm'
      ? { [NAME.provider]: upstream, [NAME.requestModel]: model }
      : {
          [NAME.mcpMethod]: method,
          [NAME.tool]: method === 'tools/call' ? target : null,
          [NAME.upstream]: upstream,
        }),
    [NAME.httpStatus]: status,
    [NAME.httpResend]: resent > 0 ? resent : null,
  }
}

/** Addresses by origin, of which there are as many as providers and servers. */
const ADDRESSES = new Map<string, AttributeMap>()
const MAX_ADDRESSES = 256

export function addressOf({ origin }: TracedRequest): AttributeMap {
  const known = ADDRESSES.get(origin)
  if (known) return known
  const url = URL.parse(origin)
  const usual = url?.protocol === 'https:' ? 443 : 80
  const made = url ? { [NAME.address]: url.hostname, [NAME.port]: Number(url.port) || usual } : {}
  if (ADDRESSES.size >= MAX_ADDRESSES) ADDRESSES.clear()
  ADDRESSES.set(origin, made)
  return made
}

const textIn = (value: unknown): string | null => (typeof value === 'string' ? value : null)
const countIn = (value: unknown): number | null => (typeof value === 'number' ? value : null)
