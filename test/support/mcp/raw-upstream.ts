import type { ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { type McpResource, NO_APPROVALS } from '../../../db/mcp/resources.ts'
import {
  type McpUpstream,
  type McpUpstreamOptions,
  openMcpUpstream,
} from '../../../proxy/mcp/upstream/client.ts'
import { type Seen, testUpstream } from '../upstream.ts'

type Json = Readonly<Record<string, unknown>>

/** One HTTP request as an MCP server saw it, and the message in it. */
export interface Told extends Seen {
  /** Empty where there was no body. */
  readonly message: Json
  /** Of the request; null for a message without one. */
  readonly id: unknown
  readonly rpc: string
  readonly session: string | undefined
}

export type Act = (res: ServerResponse, told: Told) => void | Promise<void>

/**
 * An MCP server that says exactly what a test tells it to, and does with the connection what a server should
 * not.
 */
export interface RawMcp {
  readonly url: string
  /** Every request, in the order of arrival. */
  readonly told: readonly Told[]
  /** The requests of that method. */
  readonly of: (rpc: string) => readonly Told[]
  /** How the requests to come are answered. */
  act: Act
}

/** Starts it on a port of its own; it stops with the test. */
export async function rawMcp(t: Test, act: Act = () => {}): Promise<RawMcp> {
  const told: Told[] = []
  const server = await testUpstream(t, async (res, seen) => {
    const request = toldOf(seen)
    told.push(request)
    await raw.act(res, request)
  })
  const raw: RawMcp = {
    url: `${server.url}/mcp`,
    told,
    of: (rpc) => told.filter((request) => request.rpc === rpc),
    act,
  }
  return raw
}

function toldOf(seen: Seen): Told {
  const message: Json = seen.body.length === 0 ? {} : JSON.parse(seen.body.toString())
  const session = seen.headers['mcp-session-id']
  return {
    ...seen,
    message,
    id: message.id ?? null,
    rpc: typeof message.method === 'string' ? message.method : seen.method,
    session: typeof session === 'string' ? session : undefined,
  }
}

/** Answers with this text as JSON. */
export function sendJson(res: ServerResponse, value: unknown, status = 200): void {
  res.writeHead(status, { 'content-type': 'application/json' })
  res.end(typeof value === 'string' ? value : JSON.stringify(value))
}

export const result = ({ id }: Told, value: Json = {}): Json => ({ jsonrpc: '2.0', id, result: value })

export const error = (id: unknown, code: number, message: string, data?: Json): Json => ({
  jsonrpc: '2.0',
  id,
  error: { code, message, ...(data && { data }) },
})

/** Begins an event stream. */
export function sse(res: ServerResponse): (value: unknown) => void {
  res.writeHead(200, { 'content-type': 'text/event-stream' })
  res.flushHeaders()
  return (value) => res.write(`data: ${typeof value === 'string' ? value : JSON.stringify(value)}\n\n`)
}

/** The head of an answer as raw bytes, on the connection itself. */
export function rawHead(res: ServerResponse, lines: readonly string[]): void {
  res.socket?.write(`HTTP/1.1 200 OK\r\n${lines.map((line) => `${line}\r\n`).join('')}\r\n`)
}

interface Legacy {
  /** The id of each new session; null for none. Default: `s1`, `s2`, … */
  readonly sessionId?: (count: number) => string | null
  readonly protocolVersion?: string
  readonly capabilities?: Json
  readonly tools?: readonly Json[]
  /** Any other request. Default: an empty result. */
  readonly act?: Act
}

/** A server of the legacy era. */
export function legacy(options: Legacy = {}): Act {
  const { sessionId = (count) => `s${count}`, protocolVersion = '2025-11-25', act } = options
  const { capabilities = { tools: {} }, tools = [] } = options
  let opened = 0
  return (res, told) => {
    if (told.method === 'DELETE') {
      res.writeHead(204).end()
      return
    }
    if (told.rpc === 'server/discover') {
      sendJson(res, error(null, -32000, 'Bad Request: Server not initialized'), 400)
      return
    }
    if (told.rpc === 'initialize') {
      opened += 1
      const id = sessionId(opened)
      if (id !== null) res.setHeader('mcp-session-id', id)
      const serverInfo = { name: 'raw', version: '1' }
      sendJson(res, result(told, { protocolVersion, capabilities, serverInfo }))
      return
    }
    if (told.id === null) {
      res.writeHead(202).end()
      return
    }
    if (act) return act(res, told)
    sendJson(res, result(told, told.rpc === 'tools/list' ? { tools } : {}))
  }
}

/** Limits small enough for a test to reach, and long enough that no healthy exchange does. */
const OPTIONS: McpUpstreamOptions = {
  allowPrivate: true,
  connectMs: 10_000,
  answerMs: 20_000,
  totalMs: 30_000,
  maxMessageBytes: 100_000,
  maxAnswerBytes: 200_000,
  clock: Date.now,
  secret: async (reference) => `secret-of-${reference}`,
}

/** Our side of it. It ends with the test. */
export function upstreamFor(t: Test, options: Partial<McpUpstreamOptions> = {}): McpUpstream {
  const upstream = openMcpUpstream({ ...OPTIONS, ...options })
  t.teardown(() => upstream.close())
  return upstream
}

/** A resource as the database has it. */
export function resourceAt(url: string, fields: Partial<McpResource> = {}): McpResource {
  return {
    resource_id: 'mcpr_1',
    name: 'raw',
    description: null,
    endpoint_url: url,
    auth_type: 'none',
    auth_secret_ref: null,
    required_capability: 'mcp.tools.call',
    allowed_domains: [],
    enabled: true,
    tool_capabilities: {},
    ...NO_APPROVALS,
    min_proof: 'certificate',
    tool_min_proof: {},
    oauth: null,
    revision: 1,
    created_at: '2026-01-01T00:00:00.000Z',
    updated_at: '2026-01-01T00:00:00.000Z',
    era: 'modern',
    protocol_version: '2026-07-28',
    server_facts: null,
    last_read_at: null,
    last_error: null,
    created_by: null,
    changed_by: null,
    ...fields,
  }
}
