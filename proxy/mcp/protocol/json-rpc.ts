// JSON-RPC 2.0 as text. An `id` is JSON text; null where the request's could not be read.

export const METHOD_NOT_FOUND = -32601
/** Error codes that only the modern revision has (MCP 2026-07-28, error codes). */
export const HEADER_MISMATCH = -32020
export const MISSING_CLIENT_CAPABILITY = -32021
export const UNSUPPORTED_VERSION = -32022

/** Writes a request. `params` is the JSON text of an object, or null for none. */
export const requestMessage = (id: number, method: string, params: string | null): string =>
  `{"jsonrpc":"2.0","id":${id},"method":${JSON.stringify(method)}${paramsMember(params)}}`

/** Writes a notification. `params` as in {@link requestMessage}. */
export const notificationMessage = (method: string, params: string | null): string =>
  `{"jsonrpc":"2.0","method":${JSON.stringify(method)}${paramsMember(params)}}`

const paramsMember = (params: string | null): string => (params === null ? '' : `,"params":${params}`)

export const resultMessage = (id: string, result: string): string =>
  `{"jsonrpc":"2.0","id":${id},"result":${result}}`

export const errorMessage = (id: string | null, error: string): string =>
  `{"jsonrpc":"2.0","id":${id ?? 'null'},"error":${error}}`

/**
 * Writes one message as a server-sent event. JSON text has no line break outside its strings' escapes, unless
 * its writer put one.
 */
export const eventOf = (message: string): string =>
  `event: message\n${message
    .split(/\r\n|\r|\n/)
    .map((line) => `data: ${line}\n`)
    .join('')}\n`
