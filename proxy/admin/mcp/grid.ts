import { z } from 'zod'
import {
  type BoundPrincipal,
  bindingsOfPrincipals,
  countBindings,
  findBoundPrincipals,
} from '../../../db/mcp/bound.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { readOperation } from '../operation/operation.ts'

/** The principals that are shown at once. */
const ROWS = 100

const key = z.string().max(300)

const bound = z.strictObject({
  principal_type: z.enum(['agent', 'user', 'workload']),
  principal_id: z.string(),
  name: z.string(),
  bindings: z
    .record(z.string(), z.string())
    .meta({ description: 'The id of its binding to each resource, by the id of the resource.' }),
})

const CURSOR = /^(agent|user|workload) (.+)$/

const cursor = key.regex(CURSOR, 'is not a cursor of this list').transform((text) => {
  const [, type = '', id = ''] = CURSOR.exec(text) ?? []
  return { principal_type: type as 'agent', principal_id: id }
})

/**
 * Lists the principals bound to anything by type and id, a hundred at once. `q`: words of its id or shown
 * name. `bound`: how many are bound to each resource, listed or not.
 */
export const listBoundPrincipals = readOperation({
  name: 'listBoundPrincipals',
  summary: 'Lists the principals that are bound to MCP servers, with their bindings.',
  takes: { query: z.strictObject({ q: key.exactOptional(), cursor: cursor.exactOptional() }) },
  output: z.strictObject({ principals: z.array(bound), bound: z.record(z.string(), z.int()) }),
  paged: true,
  run: async ({ database }, { query: { q = '', cursor: after } }) => {
    const words = q
      .toLowerCase()
      .split(/\s+/)
      .filter((word) => word !== '')
    const wanted = ({ principal_id: id, shown_as: name }: BoundPrincipal): boolean => {
      const text = `${id} ${name ?? ''}`.toLowerCase()
      return words.every((word) => text.includes(word))
    }
    // One more than is shown, to know whether there is a next page.
    const asked = { after, most: ROWS + 1, ...(words.length > 0 && { wanted }) }
    const found = await findBoundPrincipals(database, asked, eventLoopTurn)
    const shown = found.slice(0, ROWS)
    const own = new Map<string, Record<string, string>>()
    for (const [type, some] of Map.groupBy(shown, (one) => one.principal_type)) {
      const ids = some.map(({ principal_id: id }) => id)
      for (const {
        principal_id: id,
        resource_id: resource,
        binding_id: binding,
      } of await bindingsOfPrincipals(database, type, ids)) {
        const name = `${type} ${id}`
        own.set(name, { ...own.get(name), [resource]: binding })
      }
    }
    const principals = shown.map(({ principal_type: type, principal_id: id, shown_as: name }) => ({
      // Nobody else is ever bound.
      principal_type: type as 'agent',
      principal_id: id,
      name: name ?? id,
      bindings: own.get(`${type} ${id}`) ?? {},
    }))
    const last = found.length > ROWS ? shown.at(-1) : undefined
    return {
      value: { principals, bound: Object.fromEntries(await countBindings(database)) },
      next: last ? { ...(q !== '' && { q }), cursor: `${last.principal_type} ${last.principal_id}` } : null,
    }
  },
})
