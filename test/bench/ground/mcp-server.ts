import {
  LEGACY_VERSIONS,
  META_KEYS,
  MODERN_VERSION,
  type ProtocolEra,
} from '../../../proxy/mcp/protocol/versions.ts'
import {
  CALL_RESULTS,
  eventText,
  longResult,
  longResultAsked,
  PROGRESS_EVENTS,
  SERVER_PATHS,
  TOOL,
} from '../load/mcp-messages.ts'

/** Returns the era of the MCP server that a request is for, by its head. Null: it is for none. */
export function mcpEraOf(head: string): ProtocolEra | null {
  if (head.startsWith(`POST ${SERVER_PATHS.legacy} `)) return 'legacy'
  return head.startsWith(`POST ${SERVER_PATHS.modern} `) ? 'modern' : null
}

/** The members of a message that are read. */
interface Asked {
  readonly id?: string | number
  readonly method: string
  readonly params?: {
    readonly arguments?: { readonly query?: string }
    readonly _meta?: { readonly progressToken?: string }
  }
}

/**
 * Writes a whole HTTP answer of an MCP server that keeps no sessions and has one tool: JSON, or an event
 * stream to a call that asks for progress. Each era knows its own handshake alone. Does NOT check anything.
 */
export function mcpAnswer(era: ProtocolEra, body: string): string | Buffer {
  // Only the gateway and the load generator write any.
  const { id, method, params } = JSON.parse(body) as Asked
  if (id === undefined) return 'HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n'
  const result = RESULTS[era][method]
  // Thus a server says that it does not know the method: no error that only one of the modern era gives.
  if (result === undefined) return json('400 Bad Request', UNKNOWN)
  const bytes = method === 'tools/call' ? longResultAsked(params?.arguments?.query ?? '') : null
  if (bytes !== null)
    return longAnswer(era, { id, bytes, streams: params?._meta?.progressToken !== undefined })
  const message = `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${result}}`
  const streams = method === 'tools/call' && params?._meta?.progressToken !== undefined
  return streams ? PROGRESS_CHUNKS + chunk(eventText(message)) + LAST_CHUNK : json('200 OK', message)
}

const long = new Map<string, Buffer>()

function longAnswer(
  era: ProtocolEra,
  { id, bytes, streams }: { readonly id: string | number; readonly bytes: number; readonly streams: boolean },
): Buffer {
  const key = `${era} ${bytes}`
  const result = long.get(key) ?? longResult(era, bytes)
  long.set(key, result)
  const [front, end] = [`{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":`, '}']
  if (!streams) {
    const length = front.length + result.length + end.length
    return Buffer.concat([Buffer.from(jsonHead('200 OK', length) + front), result, Buffer.from(end)])
  }
  const [before, after] = [`event: message\ndata: ${front}`, `${end}\n\n`]
  const size = (before.length + result.length + after.length).toString(16)
  return Buffer.concat([
    Buffer.from(`${PROGRESS_CHUNKS}${size}\r\n${before}`),
    result,
    Buffer.from(`${after}\r\n${LAST_CHUNK}`),
  ])
}

const UNKNOWN = '{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Not initialized"}}'

/** Results by era and method, as JSON text. All of it is ASCII, so characters are bytes. */
const RESULTS: Readonly<Record<ProtocolEra, Readonly<Record<string, string>>>> = {
  legacy: {
    initialize: JSON.stringify({
      protocolVersion: LEGACY_VERSIONS[0],
      capabilities: { tools: {} },
      serverInfo: { name: 'bench', version: '1' },
    }),
    'tools/list': JSON.stringify({ tools: [TOOL] }),
    'tools/call': CALL_RESULTS.legacy,
  },
  modern: {
    'server/discover': modern({
      supportedVersions: [MODERN_VERSION],
      capabilities: { tools: {} },
      _meta: { [META_KEYS.serverInfo]: { name: 'bench', version: '1' } },
    }),
    'tools/list': modern({ tools: [TOOL] }),
    'tools/call': CALL_RESULTS.modern,
  },
}

function modern(result: object): string {
  return JSON.stringify({ resultType: 'complete', ...result, ttlMs: 300_000, cacheScope: 'private' })
}

const json = (status: string, body: string): string => jsonHead(status, body.length) + body

const jsonHead = (status: string, length: number): string =>
  `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n`

const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`
const LAST_CHUNK = '0\r\n\r\n'
const PROGRESS_CHUNKS =
  'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n' +
  PROGRESS_EVENTS.map(chunk).join('')
