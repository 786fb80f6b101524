import { LRUCache } from 'lru-cache'
import type { McpResource } from '../../../db/mcp/resources.ts'
import { isObject } from '../../../db/support/json.ts'
import type { Principal } from '../../../plugins/facts.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'

/** The most of one list, and of all, that is remembered. Characters. */
const MAX_OF_LIST = 1024 * 1024
const MAX_IN_ALL = 32 * 1024 * 1024
/** A longer item's URI is not looked for. Characters of JSON text. */
const MAX_ITEM = 65_536
/** The items that are read in one turn of the loop. */
const ITEMS_AT_ONCE = 256

/** The member of an item that says what can be read, by the member of the list. */
const URI_MEMBER: ReadonlyMap<string, string> = new Map([
  ['resources', 'uri'],
  ['resourceTemplates', 'uriTemplate'],
])

/**
 * The resources' URIs and templates that each principal was shown last at the common door: they tell whose a
 * URI is. Of one process, as long as there is room; a list takes the place of the one before.
 */
export class ListedUris {
  readonly #lists = new LRUCache<string, ReadonlySet<string>>({
    max: 10_000,
    maxSize: MAX_IN_ALL,
    sizeCalculation: (uris) => [...uris].reduce((sum, uri) => sum + uri.length + 64, 128),
  })

  /** Remembers what a principal was shown of a resource. */
  note(principal: Principal, resource: McpResource, member: string, uris: Iterable<string | null>): void {
    const kept = new Set<string>()
    let left = MAX_OF_LIST
    for (const uri of uris) {
      if (uri === null) continue
      left -= uri.length + 64
      if (left < 0) break
      kept.add(uri)
    }
    this.#lists.set(keyOf(principal, resource, member), kept)
  }

  /**
   * Finds which of these resources a URI, or a template, is of: those that have listed it as it is, else those
   * whose template fits it most closely.
   */
  ownersOf(principal: Principal, resources: readonly McpResource[], uri: string): readonly McpResource[] {
    const listed = (of: McpResource, member: string) => this.#lists.get(keyOf(principal, of, member))
    const exact = resources.filter((of) =>
      [...URI_MEMBER.keys()].some((member) => listed(of, member)?.has(uri) === true),
    )
    if (exact.length > 0) return exact
    const fits = resources.map((of) =>
      Math.max(0, ...[...(listed(of, 'resourceTemplates') ?? [])].map((one) => closenessTo(one, uri))),
    )
    const closest = Math.max(0, ...fits)
    return closest === 0 ? [] : resources.filter((_, index) => fits[index] === closest)
  }
}

const keyOf = ({ type, id }: Principal, { resource_id: of }: McpResource, member: string): string =>
  `${type} ${id} ${of} ${member}`

/** Reads the URI or template of each item of a list; null of one that has none. */
export async function urisOf(items: readonly string[], member: string): Promise<readonly (string | null)[]> {
  const name = URI_MEMBER.get(member)
  if (name === undefined) return []
  const uris: (string | null)[] = []
  for (const item of items) {
    if (uris.length % ITEMS_AT_ONCE === ITEMS_AT_ONCE - 1) await eventLoopTurn()
    const read: unknown = item.length > MAX_ITEM ? null : JSON.parse(item)
    const uri = isObject(read) ? read[name] : null
    uris.push(typeof uri === 'string' ? uri : null)
  }
  return uris
}

/** The most expressions of a template that are looked at. */
const MAX_PARTS = 64

/**
 * Tells how many characters of a URI are a template's own (RFC 6570); 0 if it cannot be made of it. Linear:
 * each part is looked for once.
 */
function closenessTo(template: string, uri: string): number {
  const parts = template.split(/\{[^{}]*\}/, MAX_PARTS)
  const first = parts[0] ?? ''
  const last = parts.at(-1) ?? ''
  const own = parts.reduce((sum, part) => sum + part.length, 0)
  if (parts.length < 2 || own > uri.length || !uri.startsWith(first) || !uri.endsWith(last)) return 0
  let at = first.length
  for (const part of parts.slice(1, -1)) {
    const found = uri.indexOf(part, at)
    if (found < 0) return 0
    at = found + part.length
  }
  return at <= uri.length - last.length ? own : 0
}
