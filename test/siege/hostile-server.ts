// A provider and MCP servers that answer as no honest one does. What they do goes by the model, or by the path.

import { createServer, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { sayReady } from '../bench/ground/say-ready.ts'
import { DEFINITIONS } from './hostile-definitions.ts'

const KIB = 1024
const MIB = 1024 * KIB

const JSON_TYPE = 'application/json'
const EVENTS = 'text/event-stream'

/** An answer: its type, its text, and the manner in which it is sent. */
interface Hostile {
  readonly type: string
  readonly text: () => string
  /** In chunks of one byte, or again and again without an end. Default: whole. */
  readonly manner?: 'drip' | 'endless'
}

const json = (value: unknown): Hostile => ({ type: JSON_TYPE, text: () => JSON.stringify(value) })
const list = (count: number, item: string): string => `[${`${item},`.repeat(count - 1)}${item}]`

/** What a provider answers, by the model that is asked for. */
const COMPLETIONS: Readonly<Record<string, Hostile>> = {
  'hostile-small': json({ choices: [] }),
  'hostile-big': { type: JSON_TYPE, text: () => `{"choices":[],"padding":"${'x'.repeat(8 * MIB)}"}` },
  'hostile-drip': { type: EVENTS, text: () => `data: {${' '.repeat(200 * KIB)}}\n\n`, manner: 'drip' },
  'hostile-drip-json': { type: JSON_TYPE, text: () => `{"a":"${' '.repeat(200 * KIB)}"}`, manner: 'drip' },
  'hostile-endless': {
    type: EVENTS,
    text: () => `data: {"choices":[{"delta":{"content":"${'word '.repeat(800)}"}}]}\n\n`.repeat(16),
    manner: 'endless',
  },
  'hostile-lines': { type: EVENTS, text: () => '\n'.repeat(8 * MIB) },
  'hostile-usages': { type: EVENTS, text: () => 'data: {"usage":{"prompt_tokens":1}}\n\n'.repeat(200_000) },
  'hostile-usage': {
    type: JSON_TYPE,
    text: () => `{"usage":{"prompt_tokens":1},"a":${list(660_000, '[]')}}`,
  },
  'hostile-usage-event': {
    type: EVENTS,
    text: () => `data: {"usage":{"prompt_tokens":1},"a":${list(660_000, '[]')}}\n\n`,
  },
}

export const HOSTILE_MODELS: readonly string[] = Object.keys(COMPLETIONS)

/** What a tool answers, by the name of its server. `$id`: the id of the request. Default: something small. */
const RESULTS: Readonly<Record<string, Hostile>> = {
  'h-drip': { type: JSON_TYPE, text: () => resultOf(`"a":"${' '.repeat(600 * KIB)}"`), manner: 'drip' },
  'h-endless': { type: EVENTS, text: () => event(logged('word '.repeat(800))).repeat(16), manner: 'endless' },
  'h-heavy': {
    type: JSON_TYPE,
    text: () => resultOf(`"structuredContent":{"list":${list(95_000, '{"i":1}')}}`),
  },
  'h-arrays': {
    type: JSON_TYPE,
    text: () => resultOf(`"structuredContent":{"list":${list(999_000, '[]')}}`),
  },
  'h-big': { type: JSON_TYPE, text: () => resultOf(`"a":"${'x'.repeat(8 * MIB)}"`) },
  'h-lines': { type: EVENTS, text: () => '\n'.repeat(8 * MIB) },
  'h-comments': { type: EVENTS, text: () => ': c\n'.repeat(2 * MIB) },
  'h-fields': { type: EVENTS, text: () => `${'data: \n'.repeat(MIB)}\n` },
  'h-events': { type: EVENTS, text: () => event(logged('a')).repeat(50_000) + event(resultOf('"a":1')) },
  'h-event': {
    type: EVENTS,
    text: () => event(resultOf(`"structuredContent":{"list":${list(999_000, '[]')}}`)),
  },
}

/** The MCP servers, by the name of their resource and of their path. */
export const HOSTILE_SERVERS: readonly string[] = [
  ...new Set([...Object.keys(RESULTS), ...Object.keys(DEFINITIONS)]),
]

function resultOf(members: string): string {
  return `{"jsonrpc":"2.0","id":$id,"result":{"content":[],${members}}}`
}

function logged(data: string): string {
  return JSON.stringify({ jsonrpc: '2.0', method: 'notifications/message', params: { level: 'info', data } })
}

function event(data: string): string {
  return `data: ${data}\n\n`
}

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
  const { id, method, model } = asked
  const name = path.slice(1)
  if (model !== undefined) send(res, COMPLETIONS[model] ?? json({ choices: [] }), '')
  else if (id === undefined) res.writeHead(202).end()
  else if (method === 'tools/call') send(res, RESULTS[name] ?? SMALL, JSON.stringify(id))
  else if (method === 'initialize') send(res, json({ jsonrpc: '2.0', id, result: WELCOME }), '')
  else if (method === 'tools/list')
    send(res, { type: JSON_TYPE, text: () => toolsOf(name) }, JSON.stringify(id))
  else
    send(
      res,
      json({ jsonrpc: '2.0', id: null, error: { code: -32000, message: 'Not initialized' } }),
      '',
      400,
    )
}

const SMALL: Hostile = { type: JSON_TYPE, text: () => resultOf('"isError":false') }
const WELCOME = {
  protocolVersion: '2025-11-25',
  capabilities: { tools: {} },
  serverInfo: { name: 'hostile', version: '1' },
}

function toolsOf(name: string): string {
  const tools = DEFINITIONS[name]?.() ?? '[{"name":"tool","inputSchema":{"type":"object"}}]'
  return `{"jsonrpc":"2.0","id":$id,"result":{"tools":${tools}}}`
}

function send(res: ServerResponse, hostile: Hostile, id: string, status = 200): void {
  const body = hostile.text().replace('$id', id)
  if (hostile.manner === 'drip') {
    drip(res, hostile.type, body)
    return
  }
  const length = hostile.manner === 'endless' ? {} : { 'content-length': Buffer.byteLength(body) }
  res.writeHead(status, { 'content-type': hostile.type, ...length })
  if (hostile.manner === 'endless') repeat(res, body)
  else res.end(body)
}

/** Answers in chunks of one byte. */
function drip(res: ServerResponse, type: string, body: string): void {
  const head = `HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n`
  const chunks = Array.from(body, (byte) => `1\r\n${byte}\r\n`).join('')
  res.socket?.end(`${head}${chunks}0\r\n\r\n`)
}

/** Answers as fast as the other end reads, until that hangs up. At most 16 MiB a second. */
function repeat(res: ServerResponse, piece: string): void {
  if (res.destroyed) return
  if (res.write(piece)) setTimeout(repeat, 4, res, piece)
  else res.once('drain', () => repeat(res, piece))
}
