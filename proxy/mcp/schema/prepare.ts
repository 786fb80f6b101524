import { isObject } from '../../../db/support/json.ts'
import { printJsonPath } from '../../visible.ts'
import { measureJson } from '../protocol/json-text.ts'
import { linearPattern } from './pattern.ts'
import { type SchemaDialect, settleReferences } from './references.ts'
import { type LocatedSubschema, SCHEMA_KEYWORDS, subschemas } from './subschemas.ts'

/** A JSON Schema of an upstream, small enough to compile, that refers to nothing else and runs no pattern. */
export interface PreparedSchema {
  readonly dialect: SchemaDialect
  /** A copy without the members that say nothing in either dialect, or cannot be checked. */
  readonly schema: Record<string, unknown>
  /** Characters of JSON. */
  readonly size: number
  readonly values: number
  readonly patterns: number
  /** All patterns together: {@link linearPattern}. */
  readonly patternWeight: number
  readonly unchecked: readonly string[]
}

/** The reason why a schema cannot be used: a code for the operator, a sentence for the caller. */
export interface SchemaFault {
  readonly code: 'dialect_unknown' | 'schema_too_large' | 'schema_unusable'
  readonly problem: string
}

const MAX_CHARACTERS = 256 * 1024
const MAX_DEPTH = 64
const MAX_SUBSCHEMAS = 1_000
const MAX_VALUES = 20_000
/** Characters that the compiled code repeats: places of keywords, and lists of names. */
const MAX_REPEATED = 2_000_000
const MAX_PATTERNS = 256
const MAX_PATTERN_WEIGHT = 25_000

const DIALECTS: ReadonlyMap<unknown, SchemaDialect> = new Map([
  [undefined, '2020-12'],
  ['json-schema.org/draft/2020-12/schema', '2020-12'],
  ['json-schema.org/draft/2019-09/schema', '2019-09'],
  ['json-schema.org/draft-07/schema', 'draft-07'],
])

/**
 * Reads a tool's schema (MCP 2026-07-28, JSON Schema usage): 2020-12 if it names no dialect, 2019-09 or
 * draft-07. Bounds the keywords, since the compiled code may hold the place of each. Does NOT check that its
 * keywords have the values they should have.
 */
export function prepareSchema(given: unknown): PreparedSchema | SchemaFault {
  const { depth, values } = measureJson(given, MAX_VALUES)
  if (depth > MAX_DEPTH || values > MAX_VALUES) return TOO_LARGE
  if (!isObject(given)) return unusable('it is not an object')
  const text = JSON.stringify(given)
  if (text.length > MAX_CHARACTERS) return TOO_LARGE
  const dialect = dialectOf(given)
  if (!dialect) return { code: 'dialect_unknown', problem: 'its dialect is not supported' }
  // A copy without ties to the original. JSON.parse of an object's text gives an object.
  const schema = JSON.parse(text) as Record<string, unknown>
  return prepareObject(schema, { dialect, size: text.length, values })
}

const dialectOf = ({ $schema }: Readonly<Record<string, unknown>>): SchemaDialect | undefined =>
  DIALECTS.get(typeof $schema === 'string' ? $schema.replace(/^https?:\/\//, '').replace(/#$/, '') : $schema)

function prepareObject(
  schema: Record<string, unknown>,
  of: Pick<PreparedSchema, 'dialect' | 'size' | 'values'>,
): PreparedSchema | SchemaFault {
  if (subschemas(schema).length > MAX_SUBSCHEMAS) return TOO_LARGE
  const { all, astray, circular } = settleReferences(schema, of.dialect)
  if (all.length > MAX_SUBSCHEMAS || sum(all.map(repeatedIn)) > MAX_REPEATED) return TOO_LARGE
  const [lost] = astray
  if (lost) return unusable(`${placeOf(lost)}it refers to a schema outside itself, or to none`)
  if (circular) return unusable('its references lead round in a circle')
  if (all.some((one) => isOfAnother(one.schema, of.dialect)))
    return unusable('it embeds a schema of another dialect')
  const patterns = all.flatMap(patternsOf)
  if (patterns.length > MAX_PATTERNS) return TOO_LARGE
  const unchecked: string[] = []
  let weight = 0
  for (const { source, place, leaveOut } of patterns) {
    const pattern = linearPattern(source)
    weight += pattern?.weight ?? 0
    if (pattern) continue
    leaveOut()
    unchecked.push(place)
  }
  if (weight > MAX_PATTERN_WEIGHT) return TOO_LARGE
  for (const { schema } of all) leaveOutForeign(schema)
  return { ...of, schema, patterns: patterns.length, patternWeight: weight, unchecked }
}

const isOfAnother = (schema: Readonly<Record<string, unknown>>, dialect: SchemaDialect): boolean =>
  typeof schema.$id === 'string' && schema.$schema !== undefined && dialectOf(schema) !== dialect

const placeOf = ({ path }: LocatedSubschema): string =>
  path.length === 0 ? '' : `in ${printJsonPath(path)} `

const TOO_LARGE: SchemaFault = { code: 'schema_too_large', problem: 'it is too large' }
const unusable = (problem: string): SchemaFault => ({ code: 'schema_unusable', problem })
const sum = (numbers: readonly number[]): number => numbers.reduce((total, number) => total + number, 0)

function repeatedIn({ schema, path }: LocatedSubschema): number {
  const members = Object.values(schema).map((value) =>
    typeof value === 'object' && value !== null ? 1 + Object.keys(value).length : 1,
  )
  const lists = [schema.dependentRequired, schema.dependencies].filter(isObject).flatMap(Object.values)
  const listed = lists
    .filter((list) => Array.isArray(list))
    .map((list) => list.length * JSON.stringify(list).length)
  return sum(members) * (1 + sum(path.map((step) => String(step).length + 1))) + sum(listed)
}

interface SchemaPattern {
  readonly source: string
  readonly place: string
  /** Takes it out of the schema, or makes it allow anything. */
  readonly leaveOut: () => void
}

function patternsOf({ schema, path }: LocatedSubschema): readonly SchemaPattern[] {
  const { pattern, patternProperties } = schema
  const patterns: SchemaPattern[] = []
  if (typeof pattern === 'string') {
    const place = printJsonPath([...path, 'pattern'])
    patterns.push({ source: pattern, place, leaveOut: () => delete schema.pattern })
  }
  if (!isObject(patternProperties)) return patterns
  for (const source of Object.keys(patternProperties)) {
    const place = printJsonPath([...path, 'patternProperties', source])
    const leaveOut = () => Object.defineProperty(patternProperties, source, { value: true })
    patterns.push({ source, place, leaveOut })
  }
  return patterns
}

/** The keywords of either dialect that are judged and hold no schema. */
const JUDGED: ReadonlySet<unknown> = new Set([
  'const',
  'dependentRequired',
  'enum',
  'exclusiveMaximum',
  'exclusiveMinimum',
  'maxContains',
  'maximum',
  'maxItems',
  'maxLength',
  'maxProperties',
  'minContains',
  'minimum',
  'minItems',
  'minLength',
  'minProperties',
  'multipleOf',
  'pattern',
  'required',
  'type',
  'uniqueItems',
])

/** Leaves out data, unknown words, and names that the compiler would file the schema under. */
function leaveOutForeign(schema: Record<string, unknown>): void {
  for (const [keyword, value] of Object.entries(schema))
    if (typeof value === 'object' && !JUDGED.has(keyword) && !SCHEMA_KEYWORDS.has(keyword))
      delete schema[keyword]
  delete schema.$async
  delete schema.$id
  delete schema.id
  delete schema.$anchor
  delete schema.$dynamicAnchor
  delete schema.$recursiveAnchor
  if (schema.type === undefined) delete schema.nullable
  if (!Array.isArray(schema.enum) || schema.enum.length > 0) return
  delete schema.enum
  schema.allOf = [...(Array.isArray(schema.allOf) ? schema.allOf : []), false]
}
