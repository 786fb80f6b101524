import type { UnknownRecord } from '../../../db/support/json.ts'
import { METHOD_NOT_FOUND } from '../protocol/json-text.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import { listItems } from './large-message.ts'
import { errorCodeOf, responseResult, type UpstreamMessage } from './message.ts'

const MAX_PAGES = 100
const MAX_TOOLS = 2_000
/**
 * The size of a list of tools: all definitions are judged again every few minutes, and each list of a caller
 * is made of them. Bytes.
 */
const MAX_LIST = 4 * 1024 * 1024

/** A tool as its server defines it. */
export interface RawTool {
  readonly name: string
  /**
   * The definition as JSON text, written again from the parsed value: so that the judged, pinned and listed
   * definition is one and the same, however the server spelt it.
   */
  readonly text: string
}

/**
 * Reads all tools of a server, over all pages of `tools/list`, each with a name of its own. `send` sends one
 * request with these params; `asker` waits for large pages. Throws McpUpstreamError: `too_large` past 100
 * pages, 2,000 tools, 4 MiB or `maxAnswerBytes`, `mcpUpstreamFailure` if a page is none, a cursor comes back,
 * or two tools have one name. A server without that method has no tools. Does NOT look at a definition beyond
 * its name.
 */
export async function listUpstreamTools(
  send: (params: UnknownRecord) => Promise<UpstreamMessage>,
  maxAnswerBytes: number,
  asker: ListRequester,
): Promise<readonly RawTool[]> {
  const tools = new Map<string, RawTool>()
  const cursors = new Set<string>()
  let params: UnknownRecord = {}
  let total = 0
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const response = await send(params)
    if (page === 0 && errorCodeOf(response) === METHOD_NOT_FOUND) return []
    total += response.bytes.length
    if (total > Math.min(maxAnswerBytes, MAX_LIST))
      throw new McpUpstreamError('too_large', 'its list of tools is too large')
    const result = pageOf(response)
    await addAll(tools, response, asker)
    const cursor = cursorOf(result)
    if (cursor === null) return [...tools.values()]
    if (cursors.has(cursor)) throw mcpUpstreamFailure('its list of tools goes round in a circle')
    cursors.add(cursor)
    params = { cursor }
  }
  throw new McpUpstreamError('too_large', `its list of tools has more than ${MAX_PAGES} pages`)
}

function pageOf(response: UpstreamMessage): UnknownRecord {
  const result = responseResult(response)
  if (result === null) throw mcpUpstreamFailure(`tools/list was answered with error ${errorCodeOf(response)}`)
  // Absent in the legacy era (2026-07-28, basic: result type).
  if ((result.resultType ?? 'complete') !== 'complete')
    throw mcpUpstreamFailure('tools/list was not answered completely')
  return result
}

/** The party that a list is read for. */
type ListRequester = Parameters<typeof listItems>[2]

async function addAll(
  tools: Map<string, RawTool>,
  response: UpstreamMessage,
  asker: ListRequester,
): Promise<void> {
  const items = await listItems(response, { member: 'tools', prefix: '' }, asker)
  if (items === null) throw mcpUpstreamFailure('a page of its tools holds no list')
  for (const [index, name] of items.names.entries()) {
    const text = items.texts[index] ?? null
    if (name === null || name === '' || text === null)
      throw mcpUpstreamFailure('one of its tools has no name')
    if (tools.has(name)) throw mcpUpstreamFailure('two of its tools have one name')
    if (tools.size === MAX_TOOLS) {
      throw new McpUpstreamError('too_large', `it has more than ${MAX_TOOLS} tools`)
    }
    tools.set(name, { name, text })
  }
}

/**
 * Reads the cursor of the next page, or null. Throws McpUpstreamError if it is no text. Servers also write
 * null or an empty one if there is none.
 */
export function cursorOf({ nextCursor: cursor }: UnknownRecord): string | null {
  if (cursor === undefined || cursor === null || cursor === '') return null
  if (typeof cursor !== 'string') throw mcpUpstreamFailure('the cursor of its tools is no text')
  return cursor
}
