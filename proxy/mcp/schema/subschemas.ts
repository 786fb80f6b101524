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
