import { isObject } from '../../../db/support/json.ts'
import { printJsonPath } from '../../visible.ts'
import { type SchemaNode, SchemaTree } from './subschemas.ts'

type JsonKind = 'null' | 'array' | 'object'

const KINDS: readonly JsonKind[] = ['null', 'array', 'object']

/** An outermost argument that may be text, or something else that JSON text can say. */
interface DoubtfulText {
  readonly kinds: ReadonlySet<JsonKind>
  /** True: its schema takes anything. */
  readonly untyped: boolean
}

function doubtfulTexts(root: SchemaNode): ReadonlyMap<string, DoubtfulText> {
  const takers = new AcceptedTypes(new SchemaTree(root))
  const found = new Map<string, DoubtfulText>()
  for (const [name, schemas] of takers.properties(root)) {
    const takes = (type: string): boolean =>
      schemas.some((schema) => takers.takes(schema, type) || isUnannotated(name, schema))
    const kinds = new Set(KINDS.filter(takes))
    if (kinds.size > 0 && takes('string'))
      found.set(name, {
        kinds,
        untyped: schemas.some((schema) => takers.takes(schema, 'number') && takers.takes(schema, 'boolean')),
      })
  }
  return found
}

/** The schema that the SDK of Python writes for a parameter without an annotation. */
const isUnannotated = (name: string, schema: unknown): boolean =>
  isObject(schema) &&
  schema.type === 'string' &&
  schema.title === name &&
  Object.keys(schema).every((keyword) => ['title', 'type', 'default'].includes(keyword))

/**
 * Lists the outermost arguments that by their schema are text or null, a list or an object: a server on
 * FastMCP reads such a text as JSON after every check (docs/threats.md#h1d).
 */
export const textOrJsonArguments = (root: SchemaNode): readonly string[] =>
  [...doubtfulTexts(root)].filter(([, { untyped }]) => !untyped).map(([name]) => name)

/**
 * Makes the check that no outermost argument is text which a server may read as JSON of a kind that its
 * schema takes, too. Gives null, or a sentence with the place. Throws if the budget does not suffice.
 */
export function ambiguousTextCheck(
  root: SchemaNode,
  spend: (steps: number) => void,
): (args: unknown) => string | null {
  const doubtful = doubtfulTexts(root)
  return (args) => {
    if (doubtful.size === 0 || !isObject(args)) return null
    for (const [name, { kinds }] of doubtful) {
      const text = Object.hasOwn(args, name) ? args[name] : null
      if (typeof text !== 'string') continue
      spend(text.length)
      const kind = kindOfText(text)
      if (kind !== null && kinds.has(kind)) return sentence(name, kind)
    }
    return null
  }
}

const sentence = (name: string, kind: JsonKind): string =>
  `${printJsonPath([name])} is text that some servers read as JSON (${kind}), which its schema takes, too. Send the value itself`

/** Numbers that Python's reader of JSON knows, and JSON does not. */
const NOT_NUMBERS = /-?Infinity|NaN/g

/** Returns the JSON kind of a text, for a reader who is lenient about white space and numbers. */
function kindOfText(text: string): JsonKind | null {
  const trimmed = text.trim()
  if (trimmed === 'null') return 'null'
  const isList = trimmed.startsWith('[') && trimmed.endsWith(']')
  if (!isList && !(trimmed.startsWith('{') && trimmed.endsWith('}'))) return null
  try {
    JSON.parse(trimmed.replace(NOT_NUMBERS, '0'))
  } catch {
    return null
  }
  return isList ? 'array' : 'object'
}

/** Finds the kinds that the schemas of one document take, by their types alone. */
class AcceptedTypes {
  readonly #tree: SchemaTree
  readonly #known = new Map<SchemaNode, Map<string, boolean>>()

  constructor(tree: SchemaTree) {
    this.#tree = tree
  }

  /** The properties that any branch of a schema names, each with its schemas. */
  properties(root: SchemaNode): ReadonlyMap<string, readonly unknown[]> {
    const properties = new Map<string, unknown[]>()
    for (const { properties: named } of this.#tree.holdingWith([root])) {
      for (const [name, schema] of Object.entries(isObject(named) ? named : {}))
        properties.set(name, [...(properties.get(name) ?? []), schema])
    }
    return properties
  }

  takes(schema: unknown, type: string): boolean {
    if (!isObject(schema)) return schema !== false
    const known = this.#known.get(schema) ?? new Map<string, boolean>()
    this.#known.set(schema, known)
    const answer = known.get(type)
    if (answer !== undefined) return answer
    // A schema that leads back to itself says nothing more.
    known.set(type, true)
    const taken = this.#taken(schema, type)
    known.set(type, taken)
    return taken
  }

  #taken(schema: SchemaNode, type: string): boolean {
    const { type: types, nullable, allOf, anyOf, oneOf, $ref } = schema
    if (types !== undefined && ![types, nullable === true && 'null'].flat().includes(type)) return false
    if ('const' in schema && typeOf(schema.const) !== type) return false
    if (Array.isArray(schema.enum) && !schema.enum.some((value) => typeOf(value) === type)) return false
    if ($ref !== undefined && !this.takes(this.#tree.referredBy(schema), type)) return false
    if (Array.isArray(allOf) && !allOf.every((one) => this.takes(one, type))) return false
    return [anyOf, oneOf].every((list) => !Array.isArray(list) || list.some((one) => this.takes(one, type)))
  }
}

function typeOf(value: unknown): string {
  if (value === null) return 'null'
  return Array.isArray(value) ? 'array' : typeof value
}
