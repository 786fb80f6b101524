/** JSON-RPC 2.0 as text. `id` is JSON text; null where the request's could not be read. */

export const resultMessage = (id: string, result: string): string =>
  `{"jsonrpc":"2.0","id":${id},"result":${result}}`

export const errorMessage = (id: string | null, error: string): string =>
  `{"jsonrpc":"2.0","id":${id ?? 'null'},"error":${error}}`

/** One message as a server-sent event. JSON text has no line break outside its strings' escapes, unless its writer put one. */
export const eventOf = (message: string): string =>
  `event: message\n${message
    .split(/\r\n|\r|\n/)
    .map((line) => `data: ${line}\n`)
    .join('')}\n`
