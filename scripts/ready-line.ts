/** Reads the line `{"msg":"ready","url":…}` (docs/protocol.md#ready-line); null for a line of its log. */
export function readyUrl(line: string): string | null {
  if (!line.startsWith('{"msg":"ready"')) return null
  const message: unknown = JSON.parse(line)
  const url = typeof message === 'object' && message !== null && 'url' in message ? message.url : null
  return typeof url === 'string' ? url : null
}
