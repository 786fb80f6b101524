// Writes schema.json from a checkout of github.com/ocsf/ocsf-schema: node test/support/ocsf/write-schema.ts CHECKOUT REVISION.
// Only the classes that rows become, and of their attributes only those of the objects named here: any other is refused.
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const [checkout = '', revision = ''] = process.argv.slice(2)
const CLASSES = [
  ...['application/api_activity', 'application/application_lifecycle', 'findings/detection_finding'],
  ...['iam/authentication', 'iam/account_change', 'iam/user_access', 'iam/entity_management'],
]
const OBJECTS = [
  ...['metadata', 'product', 'actor', 'user', 'api', 'request', 'response', 'service', 'network_endpoint'],
  ...['resource_details', 'ai_model', 'ai_agent', 'finding_info', 'evidences', 'managed_entity', 'object'],
]
const PROFILES = ['ai_operation', 'security_control']

interface Attribute {
  readonly requirement?: string
  readonly type?: string
  readonly is_array?: boolean
  readonly enum?: Readonly<Record<string, unknown>>
}
interface Definition {
  readonly name?: string
  readonly extends?: string
  readonly uid?: number
  readonly attributes?: Readonly<Record<string, Attribute | readonly string[]>>
  readonly constraints?: { readonly at_least_one?: readonly string[] }
}

const read = (path: string): Definition => JSON.parse(readFileSync(join(checkout, path), 'utf8'))
const dictionary = read('dictionary.json').attributes as Readonly<Record<string, Attribute>>
const PARENTS: Readonly<Record<string, string>> = {
  ...{ application: 'events/application/application', finding: 'events/findings/finding' },
  ...{ iam: 'events/iam/iam', base_event: 'events/base_event' },
}

/** An attribute as it is merged: enums add up, the rest is of whoever says it last. */
function merge(into: Map<string, Attribute>, given: Definition['attributes'] = {}): void {
  for (const [name, attribute] of Object.entries(given)) {
    if (Array.isArray(attribute)) {
      for (const path of attribute)
        if (!path.startsWith('profiles/') || PROFILES.some((one) => path.endsWith(`${one}.json`)))
          merge(into, read(path).attributes)
      continue
    }
    const known: Attribute = into.get(name) ?? dictionary[name] ?? {}
    const said = attribute as Attribute
    into.set(name, {
      ...known,
      ...said,
      ...((known.enum || said.enum) && { enum: { ...known.enum, ...said.enum } }),
    })
  }
}

function attributesOf(
  path: string,
  folder: string,
): { all: Map<string, Attribute>; atLeast: readonly string[] } {
  const definition = read(`${path}.json`)
  const parent = definition.extends
  const above =
    parent === undefined ? undefined : attributesOf(PARENTS[parent] ?? `${folder}/${parent}`, folder)
  const all = above?.all ?? new Map<string, Attribute>()
  merge(all, definition.attributes)
  return { all, atLeast: definition.constraints?.at_least_one ?? above?.atLeast ?? [] }
}

const SCALARS: Readonly<Record<string, object>> = {
  ...{ integer_t: { type: 'integer' }, long_t: { type: 'integer' }, timestamp_t: { type: 'integer' } },
  ...{ port_t: { type: 'integer' }, float_t: { type: 'number' }, boolean_t: { type: 'boolean' }, json_t: {} },
}

function schemaOfAttribute({ type = 'string_t', enum: values }: Attribute): object | null {
  if (values && type === 'integer_t') return { enum: Object.keys(values).map(Number) }
  if (type.endsWith('_t')) return SCALARS[type] ?? { type: 'string' }
  return OBJECTS.includes(type) ? { $ref: `#/$defs/${type}` } : null
}

function schemaOf(path: string, folder: string, more: object = {}): object {
  const { all, atLeast } = attributesOf(path, folder)
  const properties: Record<string, unknown> = { ...more }
  for (const [name, attribute] of all) {
    const value = schemaOfAttribute(attribute)
    if (value !== null && !(name in properties))
      properties[name] = attribute.is_array ? { type: 'array', items: value } : value
  }
  const required = [...all].filter(([, { requirement }]) => requirement === 'required').map(([name]) => name)
  const anyOf = atLeast.map((name) => ({ required: [name] }))
  return {
    type: 'object',
    properties,
    required,
    additionalProperties: false,
    ...(anyOf.length > 0 && { anyOf }),
  }
}

const $defs: Record<string, object> = { object: { type: 'object' } }
for (const name of OBJECTS) if (name !== 'object') $defs[name] = schemaOf(`objects/${name}`, 'objects')
const CATEGORIES: Readonly<Record<string, number>> = { findings: 2, iam: 3, application: 6 }
const classes = Object.fromEntries(
  CLASSES.map((path) => {
    const [folder = ''] = path.split('/')
    const category = CATEGORIES[folder] ?? 0
    const uid = category * 1_000 + (read(`events/${path}.json`).uid ?? 0)
    const fixed = { class_uid: { const: uid }, category_uid: { const: category } }
    return [uid, schemaOf(`events/${path}`, 'events', fixed)]
  }),
)
const { version } = JSON.parse(readFileSync(join(checkout, 'version.json'), 'utf8'))
const out = join(import.meta.dirname, 'schema.json')
writeFileSync(out, `${JSON.stringify({ version, revision, $defs, classes }, null, 1)}\n`)
