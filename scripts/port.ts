/** A port number from the command line, 0 to 65535. Throws one sentence where it is none. */
export function portOf(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.POSITIVE_INFINITY
  if (port <= 65_535) return port
  throw new Error(`--port must be a number from 0 to 65535, got ${JSON.stringify(text)}`)
}
