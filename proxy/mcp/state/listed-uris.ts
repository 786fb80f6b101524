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

/** The most templates of a list that URIs are compared with, and the most expressions of one. */
const MAX_TEMPLATES = 1_000
const MAX_PARTS = 64

interface NotedList {
  readonly uris: ReadonlySet<string>
  readonly templates: readonly (readonly string[])[]
}

/** The URIs and templates that each principal was shown last at the common door. Of one process. */
export class ListedUris {
  readonly #lists = new LRUCache<string, NotedList>({
    max: 10_000,
    maxSize: MAX_IN_ALL,
    sizeCalculation: ({ uris, templates }) =>
      [...uris, ...templates.flat()].reduce((sum, text) => sum + text.length + 64, 128),
  })

  note(principal: Principal, resource: McpResource, member: string, uris: Iterable<string | null>): void {
    const kept = new Set<string>()
    let left = MAX_OF_LIST
    for (const uri of uris) {
      if (uri === null) continue
      left -= uri.length + 64
      if (left < 0) break
      kept.add(uri)
    }
    const compared = member === 'resourceTemplates' ? [...kept].slice(0, MAX_TEMPLATES) : []
    const templates = compared.map((template) => template.split(/\{[^{}]*\}/, MAX_PARTS))
    this.#lists.set(keyOf(principal, resource, member), { uris: kept, templates })
  }

  /**
   * Finds which of these resources a URI may be of: those that have listed it, and those with a template that
   * fits. Neither goes first: a server could list what another's template makes, and take its place.
   */
  ownersOf(principal: Principal, resources: readonly McpResource[], uri: string): readonly McpResource[] {
    return resources.filter((of) => {
      const lists = [...URI_MEMBER.keys()].map((member) => this.#list(principal, of, member))
      return lists.some(
        (list) => list?.uris.has(uri) || list?.templates.some((template) => canMake(template, uri)),
      )
    })
  }

  /** Finds whose template a completion refers to: of those that have listed it as it is; or whose URI. */
  ownersOfReference(
    principal: Principal,
    resources: readonly McpResource[],
    text: string,
  ): readonly McpResource[] {
    const listing = resources.filter((of) => this.#list(principal, of, 'resourceTemplates')?.uris.has(text))
    return listing.length > 0 && text.includes('{') ? listing : this.ownersOf(principal, resources, text)
  }

  #list(principal: Principal, of: McpResource, member: string): NotedList | undefined {
    return this.#lists.get(keyOf(principal, of, member))
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

/** Tells whether a template (RFC 6570), as the texts between its expressions, can make a URI. Linear. */
function canMake(template: readonly string[], uri: string): boolean {
  const first = template[0] ?? ''
  const last = template.at(-1) ?? ''
  if (template.length < 2 || !uri.startsWith(first) || !uri.endsWith(last)) return false
  let at = first.length
  let own = first.length + last.length
  for (const part of template.slice(1, -1)) {
    const found = uri.indexOf(part, at)
    if (found < 0) return false
    at = found + part.length
    own += part.length
  }
  return own > 0 && at <= uri.length - last.length
}
