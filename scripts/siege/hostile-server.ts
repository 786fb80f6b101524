// A provider and MCP servers that answer as no honest one does. What they do goes by the model, or by the path.

import { createServer, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { sayReady } from '../bench/ground/say-ready.ts'

const MIB = 1024 * 1024
const KIB = 1024

/** The MCP servers, by the name of their resource and of their path. */
export const HOSTILE_SERVERS = ['h-drip', 'h-endless', 'h-heavy', 'h-big', 'h-schema'] as const

interface Asked {
  readonly id?: string | number
  readonly method?: string
  readonly model?: string
}

const server = createServer((req, res) => {
  res.on('error', () => res.destroy())
  text(req)
    // Only the gateway asks.
    .then((body) => answer(res, req.url ?? '/', (body === '' ? {} : JSON.parse(body)) as Asked))
    .catch(() => res.destroy())
})
// Imported for its names too.
if (import.meta.main) sayReady(server, () => Promise.resolve(server.closeAllConnections()))

function answer(res: ServerResponse, path: string, asked: Asked): void {
  if (asked.model !== undefined) complete(res, asked.model)
  else if (asked.id === undefined) res.writeHead(202).end()
  else if (asked.method === 'tools/call') callTool(res, path, asked.id)
  else describe(res, path, asked)
}

function complete(res: ServerResponse, model: string): void {
  if (model === 'hostile-big') json(res, { choices: [], padding: 'x'.repeat(8 * MIB) })
  else if (model === 'hostile-drip') drip(res, 'text/event-stream', `data: {${' '.repeat(200 * KIB)}}\n\n`)
  else endless(res, `data: {"choices":[{"delta":{"content":"${'word '.repeat(800)}"}}]}\n\n`)
}

function callTool(res: ServerResponse, path: string, id: string | number): void {
  const result = (more: object): object => ({ jsonrpc: '2.0', id, result: { content: [], ...more } })
  if (path === '/h-drip') drip(res, 'application/json', JSON.stringify(result({ a: ' '.repeat(600 * KIB) })))
  else if (path === '/h-endless') endless(res, `data: ${JSON.stringify(NOTIFICATION)}\n\n`)
  else if (path === '/h-heavy') json(res, result({ structuredContent: { list: OBJECTS } }))
  else json(res, result({ content: [{ type: 'text', text: 'x'.repeat(path === '/h-big' ? 8 * MIB : 10) }] }))
}

const NOTIFICATION = {
  jsonrpc: '2.0',
  method: 'notifications/message',
  params: { level: 'info', data: 'word '.repeat(800) },
}
const OBJECTS = Array.from({ length: 95_000 }, (_, i) => ({ i }))

function describe(res: ServerResponse, path: string, { id, method }: Asked): void {
  const inputSchema = path === '/h-schema' ? WIDE : { type: 'object' }
  const results: Readonly<Record<string, object>> = {
    initialize: {
      protocolVersion: '2025-11-25',
      capabilities: { tools: {} },
      serverInfo: { name: 'hostile', version: '1' },
    },
    'tools/list': { tools: [{ name: 'tool', description: 'A tool.', inputSchema }] },
  }
  const result = results[method ?? '']
  if (result) json(res, { jsonrpc: '2.0', id, result })
  else json(res, { jsonrpc: '2.0', id: null, error: { code: -32000, message: 'Not initialized' } }, 400)
}

const WIDE = {
  type: 'object',
  properties: {
    text: { type: 'string' },
    list: { type: 'array', items: { type: ['object', 'integer'] } },
    ...Object.fromEntries(
      Array.from({ length: 950 }, (_, i) => [
        `property_${i}`,
        { type: 'string', minLength: 1, maxLength: 100 + i, description: 'One of many.' },
      ]),
    ),
  },
}

function json(res: ServerResponse, value: object, status = 200): void {
  const body = JSON.stringify(value)
  res.writeHead(status, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) })
  res.end(body)
}

/** Answers in chunks of one byte. */
function drip(res: ServerResponse, type: string, body: string): void {
  const head = `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n`
  const chunks = Array.from(body, (byte) => `1\r\n${byte}\r\n`).join('')
  res.socket?.end(`${head}${chunks}0\r\n\r\n`)
}

/** Answers as fast as the other end reads, until that hangs up. At most 16 MiB a second. */
function endless(res: ServerResponse, event: string): void {
  res.writeHead(200, { 'content-type': 'text/event-stream' })
  const piece = event.repeat(16)
  const more = (): void => {
    if (res.destroyed) return
    if (res.write(piece)) setTimeout(more, 4)
    else res.once('drain', more)
  }
  more()
}
