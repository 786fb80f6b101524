import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { buffer } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import type { Test } from 'tap'
import type { Json } from '../gateway.ts'

/** One HTTP request as an MCP server saw it. */
export interface McpRequest {
  readonly verb: string
  readonly headers: IncomingHttpHeaders
  /** The JSON-RPC method; undefined where the body is a response, or none. */
  readonly method: string | undefined
  /** `Mcp-Session-Id`. */
  readonly session: string | undefined
  /** Parsed where it is JSON, else null. */
  readonly body: Json
}

/**
 * Serves a web-standard `fetch` on a port of its own until the test ends. Gives its origin and what it was
 * asked.
 */
export async function serveFetch(
  t: Test,
  fetch: (request: Request) => Promise<Response>,
): Promise<{ origin: string; requests: readonly McpRequest[] }> {
  const requests: McpRequest[] = []
  const server = createServer((req, res) => {
    answer(req, res, fetch, requests).catch((error: unknown) => res.destroy(asError(error)))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()))
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  // A TCP server that listens has an address of this shape.
  const { port } = server.address() as AddressInfo
  return { origin: `http://127.0.0.1:${port}`, requests }
}

async function answer(
  req: IncomingMessage,
  res: ServerResponse,
  fetch: (request: Request) => Promise<Response>,
  requests: McpRequest[],
): Promise<void> {
  const gone = new AbortController()
  res.once('close', () => gone.abort())
  const bytes = await buffer(req)
  const { method: verb = '', url = '/', headers } = req
  requests.push(seen(verb, headers, bytes))
  const lines = Object.entries(headers).map(([name, value]): [string, string] => [name, String(value)])
  const body = bytes.length === 0 ? null : new Uint8Array(bytes)
  const target = new URL(url, `http://${headers.host}`)
  const {
    status,
    headers: out,
    body: stream,
  } = await fetch(new Request(target, { method: verb, headers: lines, body, signal: gone.signal }))
  res.writeHead(status, Object.fromEntries(out))
  res.flushHeaders()
  if (stream === null) return void res.end()
  await send(Readable.fromWeb(stream), res)
}

async function send(from: Readable, res: ServerResponse): Promise<void> {
  try {
    await pipeline(from, res)
  } catch (error) {
    // Whoever listens to a stream leaves when it has heard enough.
    if (!res.destroyed) throw error
  }
}

function seen(verb: string, headers: IncomingHttpHeaders, bytes: Buffer): McpRequest {
  const body = json(bytes)
  const session = headers['mcp-session-id']
  return { verb, headers, method: body?.method, session: session && String(session), body }
}

function json(bytes: Buffer): Json {
  try {
    return JSON.parse(bytes.toString())
  } catch {
    return null
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)))
