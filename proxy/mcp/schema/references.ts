import { isObject } from '../../../db/support/json.ts'
import { type LocatedSubschema, referenceTo, SCHEMA_KEYWORDS, subschemas } from './subschemas.ts'

export type SchemaDialect = '2020-12' | '2019-09' | 'draft-07'

type SchemaObject = LocatedSubschema['schema']
type ReferenceTarget = SchemaObject | boolean

/** A part of the document that has a URI of its own: the whole, or a schema with an `$id` in it. */
interface SchemaResource {
  readonly uri: string
  readonly root: SchemaObject
  readonly anchors: Map<string, SchemaObject>
  readonly dynamic: Set<string>
}

export interface SettledReferences {
  readonly all: readonly LocatedSubschema[]
  /** The schemas that cannot be judged, for one of their references is to nothing in here. */
  readonly astray: readonly LocatedSubschema[]
  /** True: they lead round without reaching into the arguments, so that no call could be checked. */
  readonly circular: boolean
}

/** The URI of a document without one (RFC 3986 §5.1.4). */
const UNNAMED = 'https://schema.invalid/'
/** Keywords that hold data: nothing there is a schema, even if a reference points to it. */
const DATA: ReadonlySet<unknown> = new Set(['enum', 'const', 'default', 'example', 'examples'])
/** Keywords that keep a schema without applying it, and those that a dialect does not know. */
const UNAPPLIED: Readonly<Record<SchemaDialect, readonly string[]>> = {
  '2020-12': ['$defs', 'definitions', 'contentSchema', 'additionalItems'],
  '2019-09': ['$defs', 'definitions', 'contentSchema', 'prefixItems'],
  'draft-07': [
    '$defs',
    'definitions',
    'contentSchema',
    'prefixItems',
    'dependentSchemas',
    'unevaluatedItems',
    'unevaluatedProperties',
  ],
}
/** Keywords whose schemas are applied to the same value, whatever it is. */
const ALWAYS = ['not', 'if', 'allOf', 'oneOf']
const DYNAMIC: Readonly<Record<SchemaDialect, readonly string[]>> = {
  '2020-12': ['$dynamicRef'],
  '2019-09': ['$recursiveRef'],
  'draft-07': [],
}

/**
 * Turns every reference of a schema into the place of a schema in it, by the URIs that `$id`, `$anchor` and
 * the dynamic anchors give (JSON Schema 2020-12 §8.2). A schema under an unknown keyword is moved to `$defs`
 * if a reference points to it. Changes the schema. Looks at no other document.
 */
export function settleReferences(root: SchemaObject, dialect: SchemaDialect): SettledReferences {
  return new ReferenceWalk(root, dialect).settle()
}

class ReferenceWalk {
  readonly #root: SchemaObject
  readonly #dialect: SchemaDialect
  /** True: what stands next to a reference says nothing. */
  readonly #isOld: boolean
  readonly #all: LocatedSubschema[] = []
  readonly #located = new Map<SchemaObject, LocatedSubschema>()
  readonly #within = new Map<SchemaObject, SchemaResource>()
  /** Null: two schemas have this URI. */
  readonly #byUri = new Map<string, SchemaResource | null>()
  readonly #dynamic = new Map<string, Set<SchemaResource>>()
  readonly #targets = new Map<SchemaObject, ReferenceTarget[]>()
  readonly #moved: SchemaObject[] = []

  constructor(root: SchemaObject, dialect: SchemaDialect) {
    this.#root = root
    this.#dialect = dialect
    this.#isOld = dialect === 'draft-07'
    this.#add(subschemas(root, this.#isOld), null)
  }

  settle(): SettledReferences {
    const astray = new Set<LocatedSubschema>()
    // The list grows while schemas are moved to it.
    for (const one of this.#all) if (!this.#resolve(one)) astray.add(one)
    this.#writeMoved()
    const applied = this.#applied()
    const settled = {
      all: this.#all,
      astray: [...astray].filter(({ schema }) => applied.has(schema)),
      circular: this.#leadsRound(),
    }
    for (const one of this.#all) this.#write(one, astray.has(one))
    return settled
  }

  #add(found: readonly LocatedSubschema[], holder: SchemaResource | null): void {
    for (const one of found) {
      if (this.#located.has(one.schema)) continue
      this.#located.set(one.schema, one)
      this.#all.push(one)
      this.#identify(one, one.parent ? (this.#within.get(one.parent.schema) ?? null) : holder)
    }
  }

  #identify({ schema }: LocatedSubschema, holder: SchemaResource | null): void {
    const { $id, $ref, $anchor, $dynamicAnchor, $recursiveAnchor } = schema
    const [id = '', plain] =
      typeof $id === 'string' && !(this.#isOld && $ref !== undefined) ? splitReference($id) : []
    const uri = id === '' ? null : resolveUri(id, holder?.uri ?? UNNAMED)
    let resource = holder
    if (resource === null || uri !== null) {
      resource = { uri: uri ?? UNNAMED, root: schema, anchors: new Map(), dynamic: new Set() }
      this.#byUri.set(resource.uri, this.#byUri.has(resource.uri) ? null : resource)
    }
    this.#within.set(schema, resource)
    for (const anchor of [$anchor, $dynamicAnchor, this.#isOld ? plain : undefined])
      if (typeof anchor === 'string' && !resource.anchors.has(anchor)) resource.anchors.set(anchor, schema)
    if (typeof $dynamicAnchor === 'string') this.#addDynamic(resource, $dynamicAnchor)
    if ($recursiveAnchor === true && resource.root === schema) this.#addDynamic(resource, '')
  }

  #addDynamic(resource: SchemaResource, name: string): void {
    resource.dynamic.add(name)
    const all = this.#dynamic.get(name) ?? new Set()
    this.#dynamic.set(name, all.add(resource))
  }

  /** Finds the targets of a schema's references. False if one is to nothing in here. */
  #resolve({ schema }: LocatedSubschema): boolean {
    const targets: ReferenceTarget[] = []
    for (const keyword of ['$ref', ...DYNAMIC[this.#dialect]]) {
      const { [keyword]: reference } = schema
      if (reference === undefined) continue
      const target = this.#target(schema, reference, keyword !== '$ref')
      if (target === null) return false
      targets.push(target)
    }
    if (targets.length > 0) this.#targets.set(schema, targets)
    return true
  }

  #target(schema: SchemaObject, reference: unknown, dynamic: boolean): ReferenceTarget | null {
    if (typeof reference !== 'string') return null
    const [uri = '', fragment = ''] = splitReference(reference)
    const name = decodeFragment(fragment)
    const resource = this.#resourceOf(schema, uri)
    if (!resource || name === null) return null
    if (dynamic && resource.dynamic.has(name)) return this.#dynamicTarget(name)
    if (name === '') return resource.root
    return name.startsWith('/') ? this.#pointed(resource, name) : (resource.anchors.get(name) ?? null)
  }

  #resourceOf(schema: SchemaObject, uri: string): SchemaResource | null {
    const own = this.#within.get(schema) ?? null
    if (uri === '' || own === null) return own
    const named = resolveUri(uri, own.uri)
    return (named !== null && this.#byUri.get(named)) || null
  }

  /** The outermost on the way decides (2020-12 §8.2.3.2): the document's own, or the only one. Else null. */
  #dynamicTarget(name: string): SchemaObject | null {
    const all = this.#dynamic.get(name)
    const top = this.#within.get(this.#root)
    const [outermost] = top?.dynamic.has(name) ? [top] : all?.size === 1 ? all : []
    return outermost ? (outermost.anchors.get(name) ?? outermost.root) : null
  }

  #pointed(resource: SchemaResource, pointer: string): ReferenceTarget | null {
    let value: unknown = resource.root
    let above: SchemaObject = resource.root
    let keyword = ''
    for (const step of pointer.slice(1).split('/').map(unescapeStep)) {
      if (!isStep(value, step)) return null
      if (isObject(value) && this.#located.has(value)) [above, keyword] = [value, step]
      value = (value as Readonly<Record<string, unknown>>)[step]
    }
    if (isObject(value) && this.#located.has(value)) return value
    const ignored = this.#isOld && above.$ref !== undefined
    const known = SCHEMA_KEYWORDS.has(keyword) && !ignored
    if (typeof value === 'boolean') return DATA.has(keyword) ? null : value
    if (!isObject(value) || known || DATA.has(keyword)) return null
    this.#moved.push(value)
    const path = ['$defs', nameOfMoved(this.#moved.length)]
    this.#add(subschemas(value, this.#isOld, path), resource)
    return value
  }

  #writeMoved(): void {
    if (this.#moved.length === 0) return
    const { $defs } = this.#root
    const names = this.#moved.map((schema, index) => [nameOfMoved(index + 1), schema] as const)
    this.#root.$defs = { ...(isObject($defs) && $defs), ...Object.fromEntries(names) }
  }

  #write({ schema }: LocatedSubschema, isAstray: boolean): void {
    const targets = this.#targets.get(schema) ?? []
    const alone = this.#isOld && schema.$ref !== undefined
    for (const keyword of alone ? Object.keys(schema) : ['$ref', '$dynamicRef', '$recursiveRef'])
      if (keyword !== '$defs' && keyword !== 'definitions') delete schema[keyword]
    if (isAstray) return
    const [first, ...rest] = targets
      .filter((target) => target !== true)
      .map((target) => this.#reference(target))
    if (first === undefined) return
    if (typeof first === 'object' && rest.length === 0) Object.assign(schema, first)
    else schema.allOf = [...(Array.isArray(schema.allOf) ? schema.allOf : []), first, ...rest]
  }

  #reference(target: Exclude<ReferenceTarget, true>): { $ref: string } | false {
    return target !== false && { $ref: referenceTo(this.#located.get(target)?.path ?? []) }
  }

  #applied(): ReadonlySet<SchemaObject> {
    const below = new Map<SchemaObject, SchemaObject[]>()
    for (const { schema, path, parent } of this.#all) {
      const keyword = parent && path[parent.path.length]
      if (parent === null || UNAPPLIED[this.#dialect].includes(String(keyword))) continue
      const held = below.get(parent.schema)
      if (held) held.push(schema)
      else below.set(parent.schema, [schema])
    }
    const found = new Set<SchemaObject>([this.#root])
    for (const schema of found)
      for (const next of [...(below.get(schema) ?? []), ...(this.#targets.get(schema) ?? [])])
        if (typeof next === 'object') found.add(next)
    return found
  }

  /** Tells whether some schema is applied to the arguments again and again, whatever they are. */
  #leadsRound(): boolean {
    const done = new Set<SchemaObject>()
    const open = new Set<SchemaObject>()
    const visit = (schema: unknown): boolean => {
      if (!isObject(schema) || done.has(schema)) return false
      if (open.has(schema)) return true
      open.add(schema)
      const next: unknown[] = [...(this.#targets.get(schema) ?? [])]
      if (!(this.#isOld && schema.$ref !== undefined)) {
        next.push(...ALWAYS.flatMap((keyword) => schema[keyword]))
        if (Array.isArray(schema.anyOf)) next.push(schema.anyOf[0])
      }
      const found = next.some(visit)
      open.delete(schema)
      done.add(schema)
      return found
    }
    return visit(this.#root)
  }
}

const nameOfMoved = (count: number): string => `moved here, ${count}`

const splitReference = (text: string): readonly string[] => {
  const mark = text.indexOf('#')
  return mark < 0 ? [text] : [text.slice(0, mark), text.slice(mark + 1)]
}

const resolveUri = (uri: string, base: string): string | null => URL.parse(uri, base)?.href ?? null

function decodeFragment(fragment: string): string | null {
  try {
    return decodeURIComponent(fragment)
  } catch {
    // A lone per cent sign names nothing.
    return null
  }
}

const unescapeStep = (step: string): string => step.replaceAll('~1', '/').replaceAll('~0', '~')

const isStep = (value: unknown, step: string): boolean =>
  Array.isArray(value)
    ? /^(?:0|[1-9]\d{0,8})$/.test(step) && Number(step) < value.length
    : isObject(value) && Object.hasOwn(value, step)
