import {
  LEGACY_VERSIONS,
  META_KEYS,
  MODERN_VERSION,
  type ProtocolEra,
} from '../../../proxy/mcp/protocol/versions.ts'

/** A tools/call of the benchmark. */
export interface McpCall {
  /** The era of the caller. */
  readonly era: ProtocolEra
  /** The era of the MCP server that has the tool. */
  readonly server: ProtocolEra
  /** True where progress is asked for: the answer is then an event stream. */
  readonly progress: boolean
  /** The length of the result that is asked for. Default: some 500 bytes. */
  readonly bytes?: number
}

/** The gateway's path to all of an agent's resources. */
export const MCP_PATH = '/v1/mcp'
/** The MCP servers as resources of the gateway. */
export const RESOURCES: Readonly<Record<ProtocolEra, string>> = { legacy: 'mcp-l', modern: 'mcp-m' }
/** The paths at which `test/bench/ground/upstream.ts` is an MCP server of each era. */
export const SERVER_PATHS: Readonly<Record<ProtocolEra, string>> = {
  legacy: '/mcp-legacy',
  modern: '/mcp-modern',
}
const TOOL_NAME = 'echo'

/** A request of a caller of tools: `headers` are lines without their line ends. */
export interface McpRequest {
  readonly path: string
  readonly headers: readonly string[]
  readonly body: string
}

/**
 * The one tool of both servers. Its definition takes some 1,300 bytes, of which the input schema has 1,000.
 */
export const TOOL = {
  name: TOOL_NAME,
  title: 'Echo of a search',
  description:
    'Searches the documents of a workspace and says which of them hold the words that are asked for, the best first. Words are ' +
    'compared without regard to case. Leave out what should not narrow the search.',
  inputSchema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      query: { type: 'string', minLength: 1, maxLength: 512, description: 'The words, separated by spaces.' },
      limit: { type: 'integer', minimum: 1, maximum: 100, default: 10, description: 'Documents at most.' },
      order: { type: 'string', enum: ['relevance', 'newest', 'oldest'], description: 'What stands first.' },
      kinds: {
        type: 'array',
        items: { type: 'string', enum: ['page', 'file', 'message', 'ticket'] },
        maxItems: 4,
        uniqueItems: true,
        description: 'Kinds of document to look at.',
      },
      filter: {
        type: 'object',
        properties: {
          author: { type: 'string', maxLength: 128, description: 'An address or a name.' },
          since: { type: 'integer', minimum: 0, description: 'Changed since then, in ms.' },
          archived: { type: 'boolean', description: 'Whether archived documents count.' },
        },
        additionalProperties: false,
        description: 'What each document must fulfil.',
      },
    },
    required: ['query'],
    additionalProperties: false,
  },
  annotations: { readOnlyHint: true, openWorldHint: false },
} as const

const ARGUMENTS = {
  query: 'quarterly figures of the northern branch',
  limit: 20,
  order: 'newest',
  kinds: ['page', 'file'],
  filter: { author: 'ada@example.com', since: 1_750_000_000_000, archived: false },
}

/** The token of the call whose progress is told. */
const PROGRESS_TOKEN = 'bench'

/** Where a server is asked, and what it calls the tool. */
export interface McpPlace {
  readonly path: string
  readonly tool: string
}

/** The tool at the MCP server itself, or behind the gateway. */
const placeOf = ({ server }: McpCall, direct: boolean): McpPlace =>
  direct
    ? { path: SERVER_PATHS[server], tool: TOOL_NAME }
    : { path: MCP_PATH, tool: `${RESOURCES[server]}.${TOOL_NAME}` }

/**
 * The call as that era writes it, the same bytes each time. `direct`: to the server itself, not through the
 * gateway.
 */
export function mcpRequest(call: McpCall, direct: boolean, place = placeOf(call, direct)): McpRequest {
  const { era, progress, bytes } = call
  const { path, tool: name } = place
  const modern = era === 'modern'
  const version = modern ? MODERN_VERSION : LEGACY_VERSIONS[0]
  const meta = { ...(modern && MODERN_META), ...(progress && { progressToken: PROGRESS_TOKEN }) }
  const given = bytes === undefined ? ARGUMENTS : { ...ARGUMENTS, query: `${LONG_QUERY}${bytes}` }
  const params = { name, arguments: given, ...(Object.keys(meta).length > 0 && { _meta: meta }) }
  return {
    path,
    headers: [
      'accept: application/json, text/event-stream',
      `mcp-protocol-version: ${version}`,
      ...(modern ? ['mcp-method: tools/call', `mcp-name: ${name}`] : []),
    ],
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
  }
}

const MODERN_META = {
  [META_KEYS.version]: MODERN_VERSION,
  [META_KEYS.clientInfo]: { name: 'bench', version: '1' },
  [META_KEYS.capabilities]: {},
}

const TEXT = 'word '.repeat(100)

/** The result of a call as each era writes it, JSON text of some 500 bytes. */
export const CALL_RESULTS: Readonly<Record<ProtocolEra, string>> = {
  legacy: JSON.stringify({ content: [{ type: 'text', text: TEXT }], isError: false }),
  modern: JSON.stringify({
    resultType: 'complete',
    content: [{ type: 'text', text: TEXT }],
    isError: false,
  }),
}

const LONG_QUERY = 'a result of so many bytes: '

/** Tells how long a result is asked for; null: a short one. */
export const longResultAsked = (query: string): number | null =>
  query.startsWith(LONG_QUERY) ? Number(query.slice(LONG_QUERY.length)) : null

/** A line of a file as tools give it: quotes, blanks, and some letters outside ASCII. */
const LINE =
  'He said "that is naïve", and paid 3 € for the Größe of it;\n\tthe rest is plain, as a file has it, line for line. '

/** Writes a result of so many bytes or a few more, JSON text. */
export function longResult(era: ProtocolEra, bytes: number): Buffer {
  const text = LINE.repeat(Math.ceil(bytes / (Buffer.byteLength(JSON.stringify(LINE)) - 2)))
  const result = { content: [{ type: 'text', text }], isError: false }
  return Buffer.from(JSON.stringify(era === 'modern' ? { resultType: 'complete', ...result } : result))
}

/** One message as a server-sent event. */
export const eventText = (message: string): string => `event: message\ndata: ${message}\n\n`

const STEPS = 10

/** The events before the result where progress is asked for. */
export const PROGRESS_EVENTS: readonly string[] = Array.from({ length: STEPS }, (_, index) => {
  const progress = index + 1
  const message = `step ${progress} of ${STEPS}`
  const params = { progressToken: PROGRESS_TOKEN, progress, total: STEPS, message }
  return eventText(JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params }))
})

/** No right answer's body is shorter; an error is, and comes with HTTP status 200 all the same. Bytes. */
export function leastBytesOf({ server, progress, bytes }: McpCall): number {
  const before = progress ? PROGRESS_EVENTS.join('').length : 0
  return before + (bytes ?? CALL_RESULTS[server].length)
}
