import { Refusal } from '../../plugins/refusal.ts'
import type { Route } from './route.ts'

export interface Match {
  readonly route: Route
  readonly params: Readonly<Record<string, string>>
}

/**
 * Finds the one route of a method and a raw path, or throws `not_found`, `method_not_allowed` or
 * `base_url_wrong`.
 */
export type Router = (method: string, path: string) => Match

interface Pattern {
  readonly segments: readonly string[]
  readonly methods: Map<string, Route>
}

interface Found {
  readonly pattern: Pattern
  readonly params: Match['params']
}

const NO_PARAMS = Object.freeze({})

/**
 * Makes a {@link Router}. It matches the path exactly as it was sent (docs/threats.md#t17, #threat-32): no
 * normalising, no decoding but that of a variable segment, once, after it has been cut out. Two routes of one
 * method and path are a programming error and throw. Where several patterns fit, the first one that has the
 * method counts.
 */
export function router(routes: readonly Route[]): Router {
  const exact = new Map<string, Pattern>()
  for (const route of routes) add(exact, route)
  const variable = [...exact.values()].filter(({ segments }) => segments.some(isVariable))
  /** Finds the patterns of a path, with its variable segments. One without any stands alone. */
  const patternsOf = (path: string): readonly Found[] => {
    const found = exact.get(path)
    if (found && !found.segments.some(isVariable)) return [{ pattern: found, params: NO_PARAMS }]
    if (path.startsWith(TWICE)) throw new Refusal('base_url_wrong')
    const segments = path.split('/')
    return variable.flatMap((pattern) => {
      const params = paramsOf(pattern.segments, segments)
      return params ? [{ pattern, params }] : []
    })
  }
  return (method, path) => {
    const found = patternsOf(path)
    for (const { pattern, params } of found) {
      const route = pattern.methods.get(method)
      if (route) return { route, params }
    }
    if (found.length > 0) throw methodNotAllowed(found)
    const lacksPrefix = !path.startsWith(PREFIX) && patternsOf(`/v1${path}`).length > 0
    throw new Refusal('not_found', lacksPrefix ? WITHOUT_PREFIX : {})
  }
}

const PREFIX = '/v1/'
const TWICE = '/v1/v1/'

const WITHOUT_PREFIX = {
  message: 'There is nothing at this path. Append /v1 to the base URL of this client.',
}

function add(patterns: Map<string, Pattern>, route: Route): void {
  const pattern = patterns.get(route.path) ?? {
    segments: route.path.split('/'),
    methods: new Map<string, Route>(),
  }
  if (pattern.methods.has(route.method)) throw new Error(`two routes for ${route.method} ${route.path}`)
  pattern.methods.set(route.method, route)
  patterns.set(route.path, pattern)
}

const isVariable = (segment: string): boolean => segment.startsWith('{')

function methodNotAllowed(found: readonly Found[]): Refusal {
  const methods = found.flatMap(({ pattern }) => [...pattern.methods.keys()])
  return new Refusal('method_not_allowed', { headers: { allow: methods.join(', ') } })
}

function paramsOf(pattern: readonly string[], segments: readonly string[]): Record<string, string> | null {
  if (pattern.length !== segments.length) return null
  const params: Record<string, string> = {}
  for (const [i, expected] of pattern.entries()) {
    const segment = segments[i] ?? ''
    if (!isVariable(expected)) {
      if (segment !== expected) return null
      continue
    }
    const value = decoded(segment)
    if (value === null) return null
    params[expected.slice(1, -1)] = value
  }
  return params
}

function decoded(segment: string): string | null {
  try {
    return segment === '' ? null : decodeURIComponent(segment)
  } catch {
    return null
  }
}
