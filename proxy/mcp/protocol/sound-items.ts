import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { knownMembers, LIST_ITEM_MEMBERS, TOOL_MEMBERS } from './known-members.ts'

type TypeCheck = (value: unknown) => boolean

const isText: TypeCheck = (value) => typeof value === 'string'
const isFlag: TypeCheck = (value) => typeof value === 'boolean'
const isTexts: TypeCheck = (value) => Array.isArray(value) && value.every(isText)
const isOneOf =
  (...words: readonly unknown[]): TypeCheck =>
  (value) =>
    words.includes(value)
const isDate: TypeCheck = (value) =>
  typeof value === 'string' && /^\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(value)

/** The type of each member that MCP knows, by its name, which means one thing wherever it stands. */
const TYPES: ReadonlyMap<string, TypeCheck> = new Map([
  ...['name', 'title', 'description', 'src', 'mimeType', 'uri', 'uriTemplate'].map(
    (name) => [name, isText] as const,
  ),
  ...['readOnlyHint', 'destructiveHint', 'idempotentHint', 'openWorldHint', 'required'].map(
    (name) => [name, isFlag] as const,
  ),
  ...['_meta', 'inputSchema', 'outputSchema', 'annotations', 'execution'].map(
    (name) => [name, isObject as TypeCheck] as const,
  ),
  ...['icons', 'arguments'].map((name) => [name, Array.isArray as TypeCheck] as const),
  ['sizes', isTexts],
  ['theme', isOneOf('light', 'dark')],
  ['taskSupport', isOneOf('required', 'optional', 'forbidden')],
  ['audience', (value) => Array.isArray(value) && value.every(isOneOf('user', 'assistant'))],
  ['priority', (value) => typeof value === 'number' && value >= 0 && value <= 1],
  ['lastModified', isDate],
  ['size', (value) => typeof value === 'number'],
])

/** The member that an item of a list within an item must have. */
const INNER_LISTS: ReadonlyMap<string, string> = new Map([
  ['icons', 'src'],
  ['arguments', 'name'],
])
const INNER_OBJECTS = ['annotations', 'execution']

/** The members that an item of a list must have. */
const DEMANDED: ReadonlyMap<string, readonly string[]> = new Map([
  ['prompts', ['name']],
  ['resources', ['uri', 'name']],
  ['resourceTemplates', ['uriTemplate', 'name']],
])

/** Copies an object without members of another type than MCP's: clients refuse whole lists for one. */
export function soundMembers(object: UnknownRecord): UnknownRecord {
  const sound = Object.entries(object).filter(([name, value]) => TYPES.get(name)?.(value) ?? true)
  return Object.fromEntries(
    sound.map(([name, value]) => {
      const demanded = INNER_LISTS.get(name)
      if (demanded !== undefined && Array.isArray(value)) return [name, soundList(value, demanded)]
      return [name, INNER_OBJECTS.includes(name) && isObject(value) ? soundMembers(value) : value]
    }),
  )
}

const soundList = (list: readonly unknown[], demanded: string): readonly UnknownRecord[] =>
  list
    .filter(isObject)
    .map(soundMembers)
    .filter((item) => item[demanded] !== undefined)

/** Copies an item of the list for callers; null if it lacks a member that every item has. */
export function soundItem(item: unknown, list: string): UnknownRecord | null {
  const known = LIST_ITEM_MEMBERS.get(list)
  if (!isObject(item) || !known) return null
  const sound = soundMembers(knownMembers(item, known))
  const lacks = DEMANDED.get(list)?.some((name) => (sound[name] ?? '') === '')
  return lacks ? null : sound
}

export function soundTool(definition: UnknownRecord): UnknownRecord {
  const sound = soundMembers(knownMembers(definition, TOOL_MEMBERS))
  return { ...sound, ...plainProperties(sound, 'inputSchema'), ...plainProperties(sound, 'outputSchema') }
}

/** JSON Schema allows a boolean as the schema of a property, and clients of the older revisions refuse it. */
function plainProperties(tool: UnknownRecord, name: string): UnknownRecord {
  const schema = tool[name]
  if (!isObject(schema) || !isObject(schema.properties)) return {}
  if (!Object.values(schema.properties).some(isFlag)) return {}
  const properties = Object.entries(schema.properties).map(([key, value]) => [key, schemaOf(value)])
  return { [name]: { ...schema, properties: Object.fromEntries(properties) } }
}

/**
 * Tells whether a tool's `outputSchema` is one of 2026-07-28 alone: the revisions before it demand the schema
 * of an object, and their clients refuse the whole list because of another.
 */
export function hasModernOutput({ outputSchema: schema }: UnknownRecord): boolean {
  if (schema === undefined) return false
  if (!isObject(schema) || schema.type !== 'object') return true
  const { properties = {}, required = [] } = schema
  return !isObject(properties) || !Object.values(properties).every(isObject) || !isTexts(required)
}

function schemaOf(schema: unknown): unknown {
  if (schema === true) return {}
  return schema === false ? { not: {} } : schema
}

/** Lists the outermost members of a definition that do not go on to callers because of their type. */
export function unsoundMembers(definition: UnknownRecord): readonly string[] {
  const known = knownMembers(definition, TOOL_MEMBERS)
  const sound = soundMembers(known)
  return Object.keys(known).filter((name) => JSON.stringify(known[name]) !== JSON.stringify(sound[name]))
}
