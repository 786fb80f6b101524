import type { UnknownRecord } from '../../../db/support/json.ts'
import { METHOD_NOT_FOUND } from '../protocol/json-text.ts'
import { McpUpstreamError, mcpUpstreamFailure } from './errors.ts'
import { listItems, MAX_LIST_ITEMS, type ThreadAsker } from './large-message.ts'
import { errorCodeOf, responseResult, type UpstreamMessage } from './message.ts'

const MAX_PAGES = 100
const MAX_TOOLS = 2_000
/** The size of one definition. Bytes. */
const MAX_DEFINITION = 256 * 1024
/** The size of all definitions that are kept. Bytes. */
const MAX_LIST = 4 * 1024 * 1024
/** The amount that is read, whatever is kept of it. Bytes. */
const MAX_READ = 4 * MAX_LIST
/** The skipped items that are told one by one: a server must not choose how much is stored of them. */
const MAX_TOLD = 32

export interface RawTool {
  readonly name: string
  /** The definition as JSON text, written again: the judged, pinned and listed one is the same. */
  readonly text: string
}

export interface SkippedTool {
  /** The name as the server wrote it; null if it has none, or if the list itself is at fault. */
  readonly name: string | null
  /** One sentence about it, which holds nothing that the server could choose freely. */
  readonly reason: string
}

export class SkippedTools {
  readonly first: SkippedTool[] = []
  readonly names = new Set<string>()
  count = 0

  add(name: string | null, reason: string): void {
    if (name !== null) this.names.add(name)
    this.note(name, reason)
  }

  /** Leaves out one item, which no tool is missing for. */
  note(name: string | null, reason: string): void {
    this.count += 1
    if (this.first.length < MAX_TOLD) this.first.push({ name, reason })
  }
}

export interface ListReading {
  readonly tools: readonly RawTool[]
  readonly skipped: SkippedTools
  /** The reason why a later page could not be read; null: none is missing. */
  readonly unread: string | null
}

/**
 * Reads all tools of a server, over all pages of `tools/list`. Skips each item without a name, larger than
 * 256 KiB, or of one name with another definition, which is skipped too; and the rest of a list past 100
 * pages, 2,000 tools, 4 MiB of definitions, or 16 MiB or `maxAnswerBytes` in all. A cursor that comes back
 * ends the list. Throws McpUpstreamError if the first page is none. A server without that method has no
 * tools. Does NOT look at a definition beyond its name.
 */
export async function listUpstreamTools(
  send: (params: UnknownRecord) => Promise<UpstreamMessage>,
  maxAnswerBytes: number,
  asker: ThreadAsker,
): Promise<ListReading> {
  const list = new GatheredTools()
  const cursors = new Set<string>()
  let params: UnknownRecord = {}
  let total = 0
  for (let page = 0; ; page += 1) {
    const read = await pageOrFault(send, params, { page, asker })
    if (read === null) return list.reading()
    if ('unread' in read) return list.reading(read.unread)
    list.addPage(read.items)
    const { cursor } = read
    if (cursor === null) return list.reading()
    total += read.bytes
    const fault = endOf(cursor, { cursors, page, total, maxAnswerBytes })
    // A server that ignores the cursor has given its whole list.
    if (fault !== null && list.grew) list.skip(null, fault)
    if (fault !== null) return list.reading()
    cursors.add(cursor as string)
    params = { cursor }
  }
}

/** Says why the page after a cursor is not read; null if it is. */
function endOf(
  cursor: unknown,
  {
    cursors,
    page,
    total,
    maxAnswerBytes,
  }: {
    readonly cursors: ReadonlySet<unknown>
    readonly page: number
    readonly total: number
    readonly maxAnswerBytes: number
  },
): string | null {
  if (typeof cursor !== 'string') return 'the cursor of its list is not text, so nothing after it can be read'
  if (cursors.has(cursor)) return 'the cursor of its list comes back, so nothing after it can be read'
  if (page + 1 === MAX_PAGES)
    return `its list of tools has more than ${MAX_PAGES} pages: the rest was not read`
  if (total > Math.min(maxAnswerBytes, MAX_READ))
    return 'its list of tools is too large: the rest was not read'
  return null
}

interface ListPage {
  readonly items: ItemTexts
  readonly cursor: unknown
  readonly bytes: number
}

type ItemTexts = NonNullable<Awaited<ReturnType<typeof listItems>>>

/** Null: the server does not have such a list. A later page that fails costs the tools before it nothing. */
async function pageOrFault(
  send: (params: UnknownRecord) => Promise<UpstreamMessage>,
  params: UnknownRecord,
  { page, asker }: { readonly page: number; readonly asker: ThreadAsker },
): Promise<ListPage | { readonly unread: string } | null> {
  try {
    const response = await send(params)
    if (page === 0 && errorCodeOf(response) === METHOD_NOT_FOUND) return null
    const result = pageOf(response)
    const items = await listItems(response, { member: 'tools', prefix: '' }, asker)
    // A list without items, as servers write it whose language has no other.
    if (items === null && result.tools !== null) throw mcpUpstreamFailure('a page of its tools holds no list')
    const bytes = response.bytes.length
    // Servers also write null or an empty one if there is none.
    const cursor = result.nextCursor === '' ? null : (result.nextCursor ?? null)
    return { items: items ?? { names: [], texts: [] }, cursor, bytes }
  } catch (error) {
    if (page === 0 || asker.signal.aborted || !(error instanceof McpUpstreamError)) throw error
    return { unread: `page ${page + 1} of its list of tools could not be read (${error.message})` }
  }
}

class GatheredTools {
  readonly #tools = new Map<string, RawTool>()
  readonly #skipped = new SkippedTools()
  #size = 0
  /** True if the last page had anything that was not there before. */
  grew = false

  skip(name: string | null, reason: string): void {
    this.grew = true
    this.#skipped.add(name, reason)
  }

  addPage({ names, texts }: ItemTexts): void {
    this.grew = false
    const onPage = new Set<string>()
    for (const [index, name] of names.entries()) {
      const text = texts[index] ?? null
      if (text === null) this.skip(null, 'it is not an object')
      else if (name === null || name === '') this.skip(null, 'it has no name')
      else {
        this.#add(name, text, onPage.has(name))
        onPage.add(name)
      }
    }
    if (names.length === MAX_LIST_ITEMS)
      this.skip(null, `what a page has after ${MAX_LIST_ITEMS} items was not read`)
  }

  #add(name: string, text: string, isOnPage: boolean): void {
    // Two definitions of one name, in whatever order: neither is the tool.
    if (this.#skipped.names.has(name)) return
    const known = this.#tools.get(name)
    if (known) {
      if (known.text !== text) this.#dropBoth(known)
      // Pages overlap when a list changes between them.
      else if (isOnPage) this.#skipped.note(name, 'it is listed twice with one definition, and counts once')
      return
    }
    const size = Buffer.byteLength(text)
    if (size > MAX_DEFINITION) this.skip(name, 'its definition is larger than 256 KiB')
    else if (this.#tools.size === MAX_TOOLS) this.skip(name, `it comes after ${MAX_TOOLS} others`)
    else if (this.#size + size > MAX_LIST)
      this.skip(name, 'its list of tools is too large: the ones before it fill 4 MiB')
    else {
      this.grew = true
      this.#tools.set(name, { name, text })
      this.#size += size
    }
  }

  #dropBoth({ name, text }: RawTool): void {
    this.#tools.delete(name)
    this.#size -= Buffer.byteLength(text)
    this.skip(name, 'two tools of its list have this name, with two definitions')
  }

  reading(unread: string | null = null): ListReading {
    return { tools: [...this.#tools.values()], skipped: this.#skipped, unread }
  }
}

function pageOf(response: UpstreamMessage): UnknownRecord {
  const result = responseResult(response)
  if (result === null) throw mcpUpstreamFailure(`tools/list was answered with error ${errorCodeOf(response)}`)
  // Absent in the legacy era (2026-07-28, basic: result type).
  if ((result.resultType ?? 'complete') !== 'complete')
    throw mcpUpstreamFailure('tools/list was not answered completely')
  return result
}
