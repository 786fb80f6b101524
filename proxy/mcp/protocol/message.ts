import { isObject, type Members } from '../../../db/json.ts'
import type { JsonBody } from '../../../plugins/json-body/json-body.ts'
import type { Arrival, Plugin } from '../../../plugins/plugin.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import { callerEra, standardHeaders } from './era.ts'
import { HANDSHAKE, LEGACY_ONLY, METHODS } from './methods.ts'
import type { Era } from './versions.ts'

/** One JSON-RPC message of a caller, read once: what is judged is acted on. Given by `mcp_message`. */
export interface McpMessage {
  readonly kind: 'request' | 'notification' | 'response'
  readonly era: Era
  /** The protocol version that the message is in. */
  readonly version: string
  /** Empty for a response. */
  readonly method: string
  /** As the caller wrote it, JSON text. Null for a notification. */
  readonly id: string | null
  /** Empty where there are none. */
  readonly params: Members
  /** `params._meta`, or empty. */
  readonly meta: Members
  /** True where the caller takes server-sent events. */
  readonly takesEvents: boolean
}

/**
 * Reads the body as one JSON-RPC 2.0 message of either era, and refuses a body that two readers could take
 * for two things: a batch, a header that says otherwise than the body (MCP 2026-07-28, server validation), a
 * method that nobody serves. Refuses with `mcp_request_invalid`, `mcp_meta_invalid`,
 * `mcp_version_unsupported`, `mcp_header_mismatch`, `mcp_method_unknown`, `mcp_params_invalid`. Does NOT look
 * at what a method's parameters mean.
 */
export const mcpMessage: Plugin<Arrival & JsonBody, { message: McpMessage }> = {
  name: 'mcp_message',
  admit: (facts) => ({ message: read(facts) }),
}

function read({ json, body, spans, headers }: Arrival & JsonBody): McpMessage {
  if (json.jsonrpc !== '2.0') throw invalid('jsonrpc must be "2.0".')
  const span = spans.get('id')
  const id = span ? idText(json.id, body.toString('utf8', span.start, span.end)) : null
  if (json.method === undefined) return response(json, id, headers)
  const method = methodName(json.method)
  const params = paramsOf(json.params)
  const meta = isObject(params._meta) ? params._meta : {}
  const protocol = callerEra(headers, meta, id === null)
  const message: McpMessage = {
    ...protocol,
    kind: id === null ? 'notification' : 'request',
    method,
    id,
    params,
    meta,
    takesEvents: takesEvents(headers.accept),
  }
  standardHeaders(message, headers)
  if (message.kind === 'request' && !isServed(message)) {
    throw new Refusal('mcp_method_unknown', { message: 'This method is not served here.' })
  }
  return message
}

function response(json: Members, id: string | null, headers: Arrival['headers']): McpMessage {
  const { era, version } = callerEra(headers, {}, true)
  const whole = id !== null && 'result' in json !== 'error' in json
  if (!whole) throw invalid('It must have a method, or an id and either a result or an error.')
  if (era === 'modern') throw invalid('This protocol version knows no responses of a client.')
  return { kind: 'response', era, version, method: '', id, params: {}, meta: {}, takesEvents: false }
}

function idText(id: unknown, text: string): string {
  const sane = typeof id === 'string' ? id.length <= 256 && id.isWellFormed() : Number.isInteger(id)
  if (!sane) throw invalid('id must be a string of at most 256 characters, or an integer.')
  return text
}

function methodName(method: unknown): string {
  if (typeof method === 'string' && /^[\x21-\x7e]{1,128}$/.test(method)) return method
  throw invalid('method must be a name.')
}

function paramsOf(params: unknown): Members {
  if (params === undefined) return {}
  if (!isObject(params)) throw new Refusal('mcp_params_invalid', { message: 'params must be an object.' })
  if (params._meta !== undefined && !isObject(params._meta)) {
    throw new Refusal('mcp_params_invalid', { message: 'params._meta must be an object.' })
  }
  return params
}

function isServed({ method, era }: McpMessage): boolean {
  if (HANDSHAKE[era].has(method)) return true
  return METHODS.has(method) && !(era === 'modern' && LEGACY_ONLY.has(method))
}

const takesEvents = (accept: string | undefined): boolean =>
  accept !== undefined && /text\/event-stream|text\/\*|\*\/\*/i.test(accept)

const invalid = (message: string): Refusal => new Refusal('mcp_request_invalid', { message })
