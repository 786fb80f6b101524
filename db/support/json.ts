/**
 * JSON as the ledger stores it. Integers within ±2^53: a float has several canonical renderings in the wild.
 */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject
export interface JsonObject {
  readonly [name: string]: JsonValue
}

/** A JSON object whose members are not known. */
export type UnknownRecord = Readonly<Record<string, unknown>>

export const isObject = (value: unknown): value is UnknownRecord =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Paths of members, ordered so that each object on the way is looked up once: those of a provider's answer are read for each call. */
export interface MemberPaths {
  readonly members: readonly (readonly [name: string, path: string])[]
  readonly objects: readonly (readonly [name: string, inside: MemberPaths])[]
}

/** Prepares paths, dots between the names of each. */
export const memberPaths = (paths: Iterable<string>): MemberPaths =>
  inside([...new Set(paths)].map((path) => [path.split('.'), path]))

type SplitPath = readonly [names: readonly string[], path: string]

function inside(paths: readonly SplitPath[]): MemberPaths {
  const [members, deeper] = [
    paths.filter(([names]) => names.length === 1),
    paths.filter(([names]) => names.length > 1),
  ]
  const objects = Map.groupBy(deeper, ([[first = '']]) => first)
  return {
    members: members.map(([[name = ''], path]) => [name, path]),
    objects: [...objects].map(([name, all]) => [
      name,
      inside(all.map(([[, ...names], path]) => [names, path])),
    ]),
  }
}

/** Tells each member of `holder` that stands at one of the paths, and is not null, with its path. */
export function readMembers(
  holder: UnknownRecord,
  { members, objects }: MemberPaths,
  take: (path: string, value: unknown) => void,
): void {
  for (const [name, path] of members) {
    const value = holder[name]
    if (value !== undefined && value !== null) take(path, value)
  }
  for (const [name, paths] of objects) {
    const value = holder[name]
    if (isObject(value)) readMembers(value, paths, take)
  }
}
