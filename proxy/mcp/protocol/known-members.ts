import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { ExactNames, foldedCase } from './loose-name.ts'

/** The members that MCP gives an object, with their shapes; null: passed on as it is. */
interface KnownMembers {
  readonly [member: string]: KnownMembers | null
}

const ICON: KnownMembers = { src: null, mimeType: null, sizes: null, theme: null }
const TOOL_ANNOTATIONS: KnownMembers = {
  title: null,
  readOnlyHint: null,
  destructiveHint: null,
  idempotentHint: null,
  openWorldHint: null,
}
const ANNOTATIONS: KnownMembers = { audience: null, priority: null, lastModified: null }

const ITEM: KnownMembers = { name: null, title: null, description: null, icons: ICON, _meta: null }

export const TOOL_MEMBERS: KnownMembers = {
  ...ITEM,
  inputSchema: null,
  outputSchema: null,
  annotations: TOOL_ANNOTATIONS,
  execution: { taskSupport: null },
}

/** The members of `Implementation`, which a server calls itself by. */
export const IMPLEMENTATION_MEMBERS: KnownMembers = {
  name: null,
  title: null,
  version: null,
  description: null,
  websiteUrl: null,
  icons: ICON,
}

/** The members of the items of each list that is passed on, by the member of the result. */
export const LIST_ITEM_MEMBERS: ReadonlyMap<string, KnownMembers> = new Map([
  ['prompts', { ...ITEM, arguments: { name: null, title: null, description: null, required: null } }],
  ['resources', { ...ITEM, uri: null, mimeType: null, size: null, annotations: ANNOTATIONS }],
  ['resourceTemplates', { ...ITEM, uriTemplate: null, mimeType: null, annotations: ANNOTATIONS }],
])

export const LIST_MEMBER_BY_METHOD: ReadonlyMap<string, string> = new Map([
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
])

export const knownMembers = (object: UnknownRecord, known: KnownMembers): UnknownRecord =>
  Object.fromEntries(
    Object.entries(object).flatMap(([name, value]) => {
      const shape = Object.hasOwn(known, name) ? known[name] : undefined
      return shape === undefined ? [] : [[name, shape === null ? value : knownIn(value, shape)]]
    }),
  )

function knownIn(value: unknown, known: KnownMembers): unknown {
  if (Array.isArray(value)) return value.map((item: unknown) => knownIn(item, known))
  return isObject(value) ? knownMembers(value, known) : value
}

/** Finds members that some reader takes for a known one (CVE-2026-27896), by path. */
export function mistakenMembers(value: unknown, known: KnownMembers, path = ''): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((item: unknown) => mistakenMembers(item, known, path))
  if (!isObject(value)) return []
  const names = namesOf(known)
  return Object.entries(value).flatMap(([name, inner]) => {
    const at = path === '' ? name : `${path}.${name}`
    const shape = Object.hasOwn(known, name) ? known[name] : undefined
    if (shape === undefined) return names.areMistaken([name]) ? [at] : []
    return shape === null ? [] : mistakenMembers(inner, shape, at)
  })
}

/** The names of each shape, made once: a definition may have tens of thousands of icons. */
const exactNames = new Map<KnownMembers, ExactNames>()

function namesOf(known: KnownMembers): ExactNames {
  const names = exactNames.get(known) ?? new ExactNames(Object.keys(known), foldedCase)
  exactNames.set(known, names)
  return names
}
