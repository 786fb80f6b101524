import { isObject } from '../../../db/support/json.ts'
import { referenceTo, subschemas } from './subschemas.ts'

export type SchemaNode = Readonly<Record<string, unknown>>

/** Keywords whose schemas speak of the same value as their own: one, a list, or by name. */
const SINGLE_KEYWORDS = ['not', 'if', 'then', 'else']
const LISTED = ['allOf', 'anyOf', 'oneOf']
const BY_NAME = ['dependentSchemas', 'dependencies']

/** A prepared schema, of which every reference is the place of a schema in it (prepare.ts). */
export class SchemaTree {
  readonly #places = new Map<unknown, SchemaNode>()

  constructor(root: SchemaNode) {
    const all = subschemas({ ...root })
    for (const { schema, path } of all) this.#places.set(referenceTo(path), path.length === 0 ? root : schema)
  }

  /** Returns the schema that a reference names; undefined if it has none, or of none. */
  referredBy({ $ref }: SchemaNode): SchemaNode | undefined {
    return this.#places.get($ref)
  }

  /** Lists these schemas and all that speak of the same value, in whatever branch. */
  holdingWith(schemas: readonly SchemaNode[]): ReadonlySet<SchemaNode> {
    const found = new Set<SchemaNode>()
    const open: unknown[] = [...schemas]
    while (open.length > 0) {
      const schema = open.pop()
      if (!isObject(schema) || found.has(schema)) continue
      found.add(schema)
      open.push(this.referredBy(schema))
      for (const keyword of SINGLE_KEYWORDS) open.push(schema[keyword])
      for (const keyword of LISTED) if (Array.isArray(schema[keyword])) open.push(...schema[keyword])
      for (const keyword of BY_NAME)
        if (isObject(schema[keyword])) open.push(...Object.values(schema[keyword]))
    }
    return found
  }
}
