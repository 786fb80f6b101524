/** A request as bytes: its head with the empty line, and its body. */
export interface RawRequest {
  readonly head: string
  readonly body: string
}

/** One input whose reading must not hold up the loop. */
export interface Item {
  /** The line of docs/threats.md that it is a case of. */
  readonly id: 'A1' | 'A3' | 'A5' | 'A6' | 'A7' | 'E2' | 'row 23'
  /** Its own. */
  readonly name: string
  /** The identity that it is sent with; `nobody` has no certificate. Default `bot`, who may call LLMs and tools. */
  readonly who?: 'bot' | 'empty' | 'nobody'
  /** Certificates of its own, in place of an identity. */
  readonly chain?: () => { readonly cert: string; readonly key: string }
  /** Makes it. `secret`: the operator's. `again`: the number of times that it has been sent before. */
  readonly request: (secret: string, again: number) => RawRequest
  /** The body in pieces of one byte: chunks, or TLS records. Default: whole. */
  readonly manner?: 'chunks' | 'records'
}

export const JSON_TYPE = 'content-type: application/json'

/** A whole request, after whose answer the connection ends. */
export function requestOf(
  method: string,
  path: string,
  headers: readonly string[] = [],
  body = '',
  framing = `content-length: ${Buffer.byteLength(body)}`,
): RawRequest {
  const lines = [`${method} ${path} HTTP/1.1`, 'host: localhost', 'connection: close', ...headers, framing]
  return { head: `${lines.join('\r\n')}\r\n\r\n`, body }
}

export const chat = (body: string, headers: readonly string[] = []): RawRequest =>
  requestOf('POST', '/v1/chat/completions', [JSON_TYPE, ...headers], body)

/** A chat with one more member, whose value is this text. */
export const chatWith = (value: string): RawRequest =>
  chat(`{"model":"hostile-small","messages":[],"input":${value}}`)

export const mcp = (body: string, headers: readonly string[] = []): RawRequest =>
  requestOf('POST', '/v1/mcp', [JSON_TYPE, 'accept: application/json, text/event-stream', ...headers], body)

/** A call of a tool with these arguments. */
export const toolCall = (name: string, args = '{}'): RawRequest =>
  mcp(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"${name}","arguments":${args}}}`, [
    'mcp-protocol-version: 2025-11-25',
  ])

/** A request of the operator. */
export const admin = (method: string, path: string, secret: string, body?: unknown): RawRequest =>
  requestOf(
    method,
    path,
    [`x-admin-secret: ${secret}`, ...(body === undefined ? [] : [JSON_TYPE])],
    body === undefined ? '' : typeof body === 'string' ? body : JSON.stringify(body),
  )
