import type { IncomingHttpHeaders } from 'node:http'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { CapabilityDemand } from '../../../plugins/facts.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import { mediaWeight } from '../../../plugins/json-body/media-weight.ts'
import type { JsonSpan } from '../../../plugins/json-body/scan.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { decodeHeaderValue } from './header-values.ts'
import { areAllKnown, type MemberEdits, paramsInvalid } from './json-text.ts'
import {
  checkClientAnswer,
  checkMessageNames,
  knownParams,
  MESSAGE_NAMES,
  PARAMS_BY_METHOD,
} from './members.ts'
import {
  GATED_METHODS,
  HANDSHAKE_METHODS,
  LEGACY_ONLY_METHODS,
  NAME_PARAM_BY_METHOD,
  UNREAD_DEMAND,
} from './methods.ts'
import { uriFault } from './normal-uri.ts'
import {
  LEGACY_VERSIONS,
  META_KEYS,
  MODERN_VERSION,
  type ProtocolEra,
  SUPPORTED_VERSIONS,
  UNSTATED_VERSION,
} from './versions.ts'

/** The call that a message seems to be. Given by `mcp_peek`. */
export interface PeekedCall {
  readonly demand: CapabilityDemand
  /** The tool as the caller calls it, if it can stand in a row. */
  readonly tool: string | null
}

/** Reads the call that a message seems to be, for the row of a refusal. Refuses and decides nothing. */
export const mcpPeek: Plugin<Pick<JsonBody, 'json'>, { peeked: PeekedCall }> = {
  name: 'mcp_peek',
  admit: ({ json: { method: name, params } }) => {
    const method = typeof name === 'string' ? GATED_METHODS.get(name) : undefined
    const demand = method ? { action: method.action, demanded: method.demanded } : UNREAD_DEMAND
    const tool = method?.work === 'call_tool' && isObject(params) ? recordableName(params.name) : null
    return { peeked: { demand, tool } }
  },
}

export const recordableName = (name: unknown): string | null =>
  typeof name === 'string' && name.length <= 256 && name.isWellFormed() && !/\p{C}/u.test(name) ? name : null

/** One JSON-RPC message of a caller, read once. Given by `mcp_message`. */
export interface McpMessage {
  readonly kind: 'request' | 'notification' | 'response'
  readonly era: ProtocolEra
  readonly version: string
  /** Empty for a response. */
  readonly method: string
  /** The caller's own JSON text. Null for a notification. */
  readonly id: string | null
  readonly params: UnknownRecord
  /**
   * The changes that turn the caller's text of the parameters into `params`; empty for nearly every message.
   */
  readonly edits: MemberEdits
  /** `params._meta`, or empty. */
  readonly meta: UnknownRecord
  /** True if the caller takes server-sent events. */
  readonly takesEvents: boolean
}

/**
 * Reads the body as one JSON-RPC 2.0 message of either era, and refuses a body that two readers could take
 * for two things: a batch, a header that says otherwise than the body (MCP 2026-07-28, server validation), an
 * unknown method, a member that some reader takes for another one (members.ts). Refuses with
 * `mcp_request_invalid`, `mcp_meta_invalid`, `mcp_version_unsupported`, `mcp_header_mismatch`,
 * `mcp_method_unknown`, `mcp_params_invalid`. Does NOT look at the meaning of parameters.
 */
export const mcpMessage: Plugin<Arrival & JsonBody, { message: McpMessage }> = {
  name: 'mcp_message',
  admit: (facts) => ({ message: parseMessage(facts) }),
}

/** Chooses the first branch for a method of the handshake or any notification, the second for work. */
export const branchOnHandshake =
  <Way>(handshake: Way, work: Way) =>
  ({ message: { kind, era, method } }: { readonly message: McpMessage }): Way =>
    kind === 'notification' || (kind === 'request' && HANDSHAKE_METHODS[era].has(method)) ? handshake : work

function parseMessage(facts: Arrival & JsonBody): McpMessage {
  const { json, body, headers } = facts
  const { spans, wide } = facts.scan
  if (json.jsonrpc !== '2.0') throw invalid('jsonrpc must be "2.0".')
  if (!areAllKnown(spans.keys(), MESSAGE_NAMES.exact)) checkMessageNames(spans.keys())
  const span = spans.get('id')
  const id = span ? idText(json.id, body, span) : null
  if (json.method === undefined) return response(facts, id)
  const method = methodName(json.method)
  const given = paramsOf(json.params)
  const plain = PARAMS_BY_METHOD.get(method)?.plain ?? NO_NAMES
  const isPlain = !wide.has(given) && areAllKnown(Object.keys(given), plain)
  const { params, edits } = isPlain
    ? { params: given, edits: {} }
    : knownParams(method, given, { body, wide })
  const meta = isObject(params._meta) ? params._meta : {}
  const protocol = callerEra(headers, meta, id === null)
  const message: McpMessage = {
    ...protocol,
    kind: id === null ? 'notification' : 'request',
    method,
    id,
    params,
    edits,
    meta,
    takesEvents: takesEvents(headers.accept),
  }
  standardHeaders(message, headers)
  if (message.kind === 'request' && !isServed(message)) {
    throw new Refusal('mcp_method_unknown')
  }
  return message
}

function response({ json, scan: { wide }, headers }: Arrival & JsonBody, id: string | null): McpMessage {
  const { era, version } = callerEra(headers, {}, true)
  const whole = id !== null && 'result' in json !== 'error' in json
  if (!whole) throw invalid('It must have a method, or an id and either a result or an error.')
  if (era === 'modern') throw invalid('In this protocol version, clients send no responses.')
  const member = 'result' in json ? 'result' : 'error'
  checkClientAnswer(member, json[member], wide)
  return { kind: 'response', era, version, method: '', id, ...NO_PARAMS, takesEvents: false }
}

const NO_NAMES: ReadonlySet<string> = new Set()
const NO_PARAMS = { params: {}, edits: {}, meta: {} }

/** Tells whether an id is one that is answered: an answer repeats it. */
export const isValidRequestId = (id: unknown): id is string | number =>
  typeof id === 'string' ? id.length <= 256 && id.isWellFormed() : Number.isInteger(id)

function idText(id: unknown, body: Buffer, { start, end }: JsonSpan): string {
  if (!isValidRequestId(id)) throw invalid('id must be a string of at most 256 characters, or an integer.')
  return body.toString('utf8', start, end)
}

function methodName(method: unknown): string {
  if (typeof method === 'string' && /^[\x21-\x7e]{1,128}$/.test(method)) return method
  throw invalid('method must be a name.')
}

function paramsOf(params: unknown): UnknownRecord {
  if (params === undefined) return {}
  if (!isObject(params)) throw paramsInvalid('params must be an object.')
  if (params._meta !== undefined && !isObject(params._meta))
    throw paramsInvalid('params._meta must be an object.')
  return params
}

function isServed({ method, era }: McpMessage): boolean {
  if (HANDSHAKE_METHODS[era].has(method)) return true
  return GATED_METHODS.has(method) && !(era === 'modern' && LEGACY_ONLY_METHODS.has(method))
}

const takesEvents = (accept: string | undefined): boolean =>
  accept !== undefined &&
  /text\/event-stream|text\/\*|\*\/\*/i.test(accept) &&
  // Hardly any client weighs what it takes.
  (!accept.includes(';') || mediaWeight(accept, 'text/event-stream') > 0)

interface Protocol {
  readonly era: ProtocolEra
  readonly version: string
}

/**
 * Reads the protocol version and era of a caller's message: header and `_meta` must say the same. Without
 * either it is of the legacy era (docs/protocol.md#python-helper). `lone`: a notification or response, which
 * carries no `_meta`.
 */
function callerEra(headers: IncomingHttpHeaders, meta: UnknownRecord, lone: boolean): Protocol {
  const header = headers['mcp-protocol-version']
  const declared = meta[META_KEYS.version]
  if (declared === undefined) return undeclaredProtocol(header, lone)
  if (typeof declared !== 'string') throw metaInvalid(`${META_KEYS.version} must be a string.`)
  if (header !== declared)
    throw mismatch(`MCP-Protocol-Version does not match the ${META_KEYS.version} of the body.`)
  // As server/discover says: a client in this form has no use for a version without it.
  if (declared !== MODERN_VERSION) throw unsupported(declared, [MODERN_VERSION])
  const capabilities = meta[META_KEYS.capabilities]
  if (typeof capabilities !== 'object' || capabilities === null || Array.isArray(capabilities)) {
    throw metaInvalid(`${META_KEYS.capabilities} must be an object.`)
  }
  return { era: 'modern', version: MODERN_VERSION }
}

function undeclaredProtocol(header: string | string[] | undefined, lone: boolean): Protocol {
  if (header === undefined) return { era: 'legacy', version: UNSTATED_VERSION }
  if (typeof header === 'string' && LEGACY_VERSIONS.includes(header))
    return { era: 'legacy', version: header }
  if (header !== MODERN_VERSION) throw unsupported(String(header), SUPPORTED_VERSIONS)
  if (lone) return { era: 'modern', version: MODERN_VERSION }
  throw metaInvalid(`${META_KEYS.version} is missing in params._meta.`)
}

/**
 * Checks that `Mcp-Method` and `Mcp-Name` repeat the body (MCP 2026-07-28, standard request headers): a hop
 * before us may have judged by them. Only a modern request must carry them.
 */
function standardHeaders({ era, kind, method, params }: McpMessage, headers: IncomingHttpHeaders): void {
  const required = era === 'modern' && kind === 'request'
  compare('Mcp-Method', headers['mcp-method'], method, required)
  const member = NAME_PARAM_BY_METHOD.get(method)
  const name = member === undefined ? undefined : params[member]
  const header = headers['mcp-name']
  // A name that is no string is refused by the reader of the parameters.
  if (member === undefined || typeof name !== 'string') return
  const decoded = typeof header === 'string' ? decodeHeaderValue(header) : undefined
  compare('Mcp-Name', decoded, name, required)
}

function compare(
  name: string,
  header: string | string[] | null | undefined,
  value: string,
  required: boolean,
): void {
  if (header === undefined && !required) return
  if (header !== value) throw mismatch(`${name} does not match the body.`)
}

const invalid = (message: string): Refusal => new Refusal('mcp_request_invalid', { message })
const mismatch = (message: string): Refusal => new Refusal('mcp_header_mismatch', { message })
const metaInvalid = (message: string): Refusal => new Refusal('mcp_meta_invalid', { message })

const unsupported = (requested: string, supported: readonly string[]): Refusal =>
  new Refusal('mcp_version_unsupported', { detail: { supported, requested: requested.slice(0, 64) } })

/** Reads the name of the prompt that a method means, or null. Refuses with `mcp_params_invalid`. */
export function promptOf({ method, params }: McpMessage): string | null {
  if (method === 'prompts/get') return toolOrPromptName(params.name)
  if (method === 'logging/setLevel') return null
  if (method !== 'completion/complete') {
    uriOf(params.uri)
    return null
  }
  const { ref } = params
  if (isObject(ref) && ref.type === 'ref/prompt') return toolOrPromptName(ref.name)
  if (!isObject(ref) || ref.type !== 'ref/resource')
    throw paramsInvalid('ref must name a prompt or a resource.')
  uriOf(ref.uri, true)
  return null
}

export function toolOrPromptName(name: unknown): string {
  if (typeof name === 'string' && name !== '' && name.length <= 256 && name.isWellFormed()) return name
  throw paramsInvalid('name must be a string of 1 to 256 characters.')
}

const MAX_URI = 8_192
/** An expression of a template (RFC 6570 §2): it may stand wherever a letter may. */
const EXPRESSION = /\{[^{}]*\}/g

/** Checks the URI of a resource: a rule judges it as it is written, and a server acts on its normal form. */
function uriOf(uri: unknown, isTemplate = false): void {
  if (typeof uri !== 'string' || uri === '' || uri.length > MAX_URI || !uri.isWellFormed())
    throw paramsInvalid(`uri must be a string of 1 to ${MAX_URI} characters.`)
  const fault = uriFault(isTemplate ? uri.replace(EXPRESSION, 'x') : uri)
  if (fault !== null) throw paramsInvalid(`uri ${fault}. Send it in its normal form (RFC 3986 §6.2.2).`)
}

export function toolCallArguments({ params }: McpMessage): Readonly<Record<string, unknown>> {
  const { arguments: given = {} } = params
  if (!isObject(given)) throw paramsInvalid('arguments must be an object.')
  return given
}

/** Makes the refusal of an answer to a question that nobody has asked, or whose call is over. */
export const noServerRequest = (): Refusal =>
  new Refusal('mcp_message_invalid', {
    message: 'No such request is open: it was answered, or its call is over.',
  })
