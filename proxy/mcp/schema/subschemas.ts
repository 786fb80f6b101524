import { isObject } from '../../../db/support/json.ts'

type SchemaPath = readonly (string | number)[]

/** A schema, at the top of a JSON Schema or within it. */
export interface LocatedSubschema {
  /** The object itself, not a copy. */
  readonly schema: Record<string, unknown>
  readonly path: SchemaPath
  /**
   * The names of the properties that lead here, if nothing else does; else null (MCP 2026-07-28,
   * x-mcp-header).
   */
  readonly properties: readonly string[] | null
}

/** Keywords whose members are schemas by name, whatever the names are. */
const BY_NAME = new Set([
  'properties',
  'patternProperties',
  'dependentSchemas',
  'dependencies',
  '$defs',
  'definitions',
])
/** Keywords that hold data: an object in them is no schema, whatever it looks like. */
const DATA = new Set(['enum', 'const', 'default', 'example', 'examples'])

/**
 * Lists every schema of a JSON Schema (2020-12 or draft-07), itself first. An object below a keyword that
 * nobody knows counts as one: a reference may point there. Expects a document that is no deeper than a stack.
 */
export function subschemas(root: Record<string, unknown>): readonly LocatedSubschema[] {
  const all: LocatedSubschema[] = []
  const visit = (schema: unknown, path: SchemaPath, properties: readonly string[] | null): void => {
    if (!isObject(schema)) return
    all.push({ schema, path, properties })
    for (const [keyword, value] of Object.entries(schema)) {
      if (DATA.has(keyword)) continue
      if (Array.isArray(value)) {
        for (const [index, item] of value.entries()) visit(item, [...path, keyword, index], null)
      } else if (BY_NAME.has(keyword) && isObject(value)) {
        for (const [name, item] of Object.entries(value)) {
          visit(
            item,
            [...path, keyword, name],
            keyword === 'properties' && properties ? [...properties, name] : null,
          )
        }
      } else visit(value, [...path, keyword], null)
    }
  }
  visit(root, [], [])
  return all
}
