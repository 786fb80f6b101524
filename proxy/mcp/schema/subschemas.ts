import { isObject } from '../../../db/support/json.ts'

type SchemaPath = readonly (string | number)[]

export interface LocatedSubschema {
  readonly schema: Record<string, unknown>
  readonly path: SchemaPath
  /** Null: the top. */
  readonly parent: LocatedSubschema | null
  /** The names of the properties that lead here, if nothing else does; else null. */
  readonly properties: readonly string[] | null
}

/** Keywords that hold one schema, or a list of them. */
const SCHEMAS: readonly string[] = [
  'additionalItems',
  'additionalProperties',
  'allOf',
  'anyOf',
  'contains',
  'contentSchema',
  'else',
  'if',
  'items',
  'not',
  'oneOf',
  'prefixItems',
  'propertyNames',
  'then',
  'unevaluatedItems',
  'unevaluatedProperties',
]
/** Keywords whose members are schemas by name, whatever the names are. */
const BY_NAME: readonly string[] = [
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
]
/** Keywords that keep schemas, and apply none. */
const KEEPS: readonly string[] = ['$defs', 'definitions']

/** The keywords that hold schemas. Under any other stands data, whatever it looks like. */
export const SCHEMA_KEYWORDS: ReadonlySet<unknown> = new Set([...SCHEMAS, ...BY_NAME])

/**
 * Lists every schema of a JSON Schema (2020-12, 2019-09 or draft-07), itself first. `alone`: what stands next
 * to a reference is data, as in draft-07. `at`: its own place. Expects a document no deeper than a stack.
 */
export function subschemas(
  root: Record<string, unknown>,
  alone = false,
  at: SchemaPath = [],
): readonly LocatedSubschema[] {
  const all: LocatedSubschema[] = []
  const visit = (schema: unknown, from: Omit<LocatedSubschema, 'schema'>): void => {
    if (!isObject(schema)) return
    const found: LocatedSubschema = { schema, ...from }
    all.push(found)
    const keywords = alone && schema.$ref !== undefined ? KEEPS : Object.keys(schema)
    const below = (more: SchemaPath, properties: LocatedSubschema['properties'] = null) => ({
      path: [...from.path, ...more],
      parent: found,
      properties,
    })
    for (const keyword of keywords) {
      const { [keyword]: value } = schema
      if (BY_NAME.includes(keyword)) {
        for (const [name, item] of Object.entries(isObject(value) ? value : {})) {
          const names = keyword === 'properties' && from.properties ? [...from.properties, name] : null
          visit(item, below([keyword, name], names))
        }
      } else if (SCHEMAS.includes(keyword)) {
        if (!Array.isArray(value)) visit(value, below([keyword]))
        else for (const [index, item] of value.entries()) visit(item, below([keyword, index]))
      }
    }
  }
  visit(root, { path: at, parent: null, properties: [] })
  return all
}

export const referenceTo = (path: SchemaPath): string =>
  `#${path.map((step) => `/${encodeURIComponent(String(step).replaceAll('~', '~0').replaceAll('/', '~1'))}`).join('')}`

export type SchemaNode = Readonly<Record<string, unknown>>

/** Keywords whose schemas speak of the same value as their own: one, a list, or by name. */
const SINGLE_KEYWORDS = ['not', 'if', 'then', 'else']
const LISTED = ['allOf', 'anyOf', 'oneOf']
const APPLIED_BY_NAME = ['dependentSchemas', 'dependencies']

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
      for (const keyword of APPLIED_BY_NAME)
        if (isObject(schema[keyword])) open.push(...Object.values(schema[keyword]))
    }
    return found
  }
}
