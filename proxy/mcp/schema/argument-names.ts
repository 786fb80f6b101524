import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { printJsonPath } from '../../visible.ts'
import { ExactNames, looseName } from '../protocol/loose-name.ts'
import { type SchemaNode, SchemaTree } from './subschemas.ts'

interface NamedPlace {
  readonly names: ExactNames
  /** The schemas of each: several may hold for one value. */
  readonly properties: ReadonlyMap<string, readonly SchemaNode[]>
  /** The schemas of members that no property names; `items`: those of the items of a list. */
  readonly others: readonly SchemaNode[]
  readonly rest: readonly RestOfObject[]
  /** The schemas of properties for which some of the rest hold, too. */
  readonly joined: Map<string, readonly SchemaNode[]>
  readonly items: readonly SchemaNode[]
  /** Places below this one that were visited, by the schemas that hold there. */
  readonly below: Map<readonly SchemaNode[], NamedPlace>
}

/** One schema's rule for the members that it does not name; another schema may name them. */
interface RestOfObject {
  readonly schema: SchemaNode
  readonly named: UnknownRecord
}

interface MistakenName {
  readonly path: (string | number)[]
  readonly other: string
}

const OF_ITEMS = ['items', 'prefixItems', 'additionalItems', 'contains', 'unevaluatedItems']
/** Keywords by which the name of one property decides about others. */
const BY_PROPERTY = ['dependentRequired', 'dependentSchemas', 'dependencies']
const OF_OTHERS = ['additionalProperties', 'unevaluatedProperties']

/** Steps of a check's budget that a name costs, and a schema at a place that is new. */
const NAME_STEPS = 10
const SCHEMA_STEPS = 20
/** Places of one schema that are remembered. One without recursion has fewer. */
const MAX_PLACES = 1_000
/** Most properties of one place that are remembered with everything else that holds for them. */
const MAX_JOINED = 64

/**
 * Makes the check that no argument has a name which some reader takes for that of a property, at any depth,
 * or two outermost ones without a property for each other's (docs/threats.md#h1). Names in any branch of the
 * schema count. Gives null, or a sentence with the place. Throws if the budget does not suffice. Expects
 * arguments no deeper than a stack.
 */
export function argumentNames(
  root: SchemaNode,
  spend: (steps: number) => void,
): (args: unknown) => string | null {
  const places = new NamedPlaces(root)
  return (args) => {
    const found =
      findMistakenName(args, places.top, { places, spend }) ?? findDuplicateName(args, places.top, spend)
    if (found === null) return null
    return `${printJsonPath(found.path)} has a name that some servers read as ${found.other}. Leave it out`
  }
}

interface Walk {
  readonly places: NamedPlaces
  readonly spend: (steps: number) => void
}

function findMistakenName(value: unknown, place: NamedPlace, walk: Walk): MistakenName | null {
  if (Array.isArray(value)) return findMistakenItem(value, place, walk)
  if (!isObject(value) || (place.properties.size === 0 && place.others.length === 0)) return null
  for (const [name, member] of Object.entries(value)) {
    walk.spend(NAME_STEPS + name.length)
    const mistaken = place.names.mistakenFor(name)
    if (mistaken !== null) return { path: [name], other: `the property ${printJsonPath([mistaken])}` }
    const schemas = schemasOf(name, place, walk.spend)
    if (schemas.length === 0 || typeof member !== 'object') continue
    const found = findMistakenName(member, walk.places.below(place, schemas, walk.spend), walk)
    if (found === null) continue
    found.path.unshift(name)
    return found
  }
  return null
}

function schemasOf(name: string, place: NamedPlace, spend: Walk['spend']): readonly SchemaNode[] {
  const { properties, others, rest, joined } = place
  const own = properties.get(name) ?? []
  if (own.length === 0 || rest.length === 0) return own.length === 0 ? others : own
  const known = joined.get(name)
  if (known) return known
  spend(SCHEMA_STEPS * rest.length)
  const more = rest.filter(({ named }) => !Object.hasOwn(named, name)).map(({ schema }) => schema)
  if (more.length === 0) return own
  if (joined.size === MAX_JOINED) {
    for (const schemas of joined.values()) place.below.delete(schemas)
    joined.clear()
  }
  const all = [...own, ...more]
  joined.set(name, all)
  return all
}

function findMistakenItem(items: readonly unknown[], place: NamedPlace, walk: Walk): MistakenName | null {
  if (place.items.length === 0) return null
  const below = walk.places.below(place, place.items, walk.spend)
  for (const [index, item] of items.entries()) {
    const found = findMistakenName(item, below, walk)
    if (found === null) continue
    found.path.unshift(index)
    return found
  }
  return null
}

function findDuplicateName(args: unknown, { names }: NamedPlace, spend: Walk['spend']): MistakenName | null {
  if (!isObject(args)) return null
  const seen = new Set<string>()
  for (const name of Object.keys(args)) {
    if (names.exact.has(name)) continue
    spend(NAME_STEPS + name.length)
    const loose = looseName(name)
    if (seen.has(loose)) return { path: [name], other: 'another argument' }
    seen.add(loose)
  }
  return null
}

class NamedPlaces {
  readonly top: NamedPlace
  readonly #tree: SchemaTree
  readonly #ids = new Map<SchemaNode, number>()
  readonly #byIds = new Map<string, NamedPlace>()

  constructor(root: SchemaNode) {
    this.#tree = new SchemaTree(root)
    this.top = placeFor(this.#tree.holdingWith([root]))
  }

  below(place: NamedPlace, schemas: readonly SchemaNode[], spend: Walk['spend']): NamedPlace {
    const known = place.below.get(schemas)
    if (known) return known
    const made = this.#with(schemas, spend)
    place.below.set(schemas, made)
    return made
  }

  #with(schemas: readonly SchemaNode[], spend: Walk['spend']): NamedPlace {
    const holding = this.#tree.holdingWith(schemas)
    const ids = [...holding].map((schema) => this.#idOf(schema)).sort((one, other) => one - other)
    spend(SCHEMA_STEPS * ids.length)
    const key = ids.join()
    const known = this.#byIds.get(key)
    if (known) return known
    const made = placeFor(holding)
    spend(SCHEMA_STEPS * (made.properties.size + made.others.length + made.items.length))
    if (this.#byIds.size === MAX_PLACES) this.#forget()
    this.#byIds.set(key, made)
    return made
  }

  /** Forgets all places but the top: a recursive schema could be led through any number of them. */
  #forget(): void {
    this.#byIds.clear()
    this.top.below.clear()
  }

  #idOf(schema: SchemaNode): number {
    const id = this.#ids.get(schema) ?? this.#ids.size
    this.#ids.set(schema, id)
    return id
  }
}

function propertiesWithoutSchema({ required, ...rest }: SchemaNode): readonly string[] {
  const beside = BY_PROPERTY.map((keyword) => rest[keyword]).filter(isObject)
  const listed: unknown[] = [required, ...beside.map(Object.keys), ...beside.map(Object.values)]
  return listed.flat(2).filter((name) => typeof name === 'string')
}

function placeFor(holding: ReadonlySet<SchemaNode>): NamedPlace {
  const properties = new Map<string, SchemaNode[]>()
  const others: SchemaNode[] = []
  const rest: RestOfObject[] = []
  const items: SchemaNode[] = []
  const name = (property: string, schema: unknown): void => {
    const schemas = properties.get(property) ?? []
    if (isObject(schema)) schemas.push(schema)
    properties.set(property, schemas)
  }
  for (const schema of holding) {
    const { properties: named = {}, patternProperties: patterns, additionalProperties: more } = schema
    if (isObject(named)) for (const [property, its] of Object.entries(named)) name(property, its)
    for (const property of propertiesWithoutSchema(schema)) name(property, null)
    if (isObject(patterns)) others.push(...Object.values(patterns).filter(isObject))
    if (isObject(named) && isObject(more)) rest.push({ schema: more, named })
    others.push(...OF_OTHERS.map((keyword) => schema[keyword]).filter(isObject))
    items.push(...OF_ITEMS.flatMap((keyword) => schema[keyword]).filter(isObject))
  }
  const names = new ExactNames(properties.keys(), looseName)
  return { names, properties, others, rest, items, joined: new Map(), below: new Map() }
}
