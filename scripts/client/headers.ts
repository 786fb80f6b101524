import type { Dispatcher } from 'undici'

type DispatchHeaders = Dispatcher.DispatchOptions['headers']
type Value = string | number | readonly string[] | undefined

// The gateway knows its caller by certificate, token and proof. A key that an SDK insists on having must go
// nowhere.
const REPLACED = new Set(['authorization', 'x-api-key', 'dpop'])

/**
 * Returns the caller's headers without its own credentials, then ours: names and values in turn. Takes every
 * form that an HTTP client hands to undici: an object, names and values in turn, or pairs.
 */
export function withCredentials(headers: DispatchHeaders, ours: Readonly<Record<string, string>>): string[] {
  const kept = [...pairs(headers)].filter(([name]) => !REPLACED.has(name.toLowerCase()))
  return [...kept, ...Object.entries(ours)].flatMap(([name, value]) =>
    valuesOf(value).flatMap((text) => [name, text]),
  )
}

function* pairs(headers: DispatchHeaders): Generator<readonly [string, Value]> {
  if (headers === null || headers === undefined) return
  if (Array.isArray(headers)) {
    for (let i = 0; i + 1 < headers.length; i += 2) yield [String(headers[i]), headers[i + 1]]
    return
  }
  if (Symbol.iterator in headers && typeof headers[Symbol.iterator] === 'function') {
    yield* headers as Iterable<[string, Value]>
    return
  }
  yield* Object.entries(headers as Record<string, Value>)
}

function valuesOf(value: Value): readonly string[] {
  if (value === undefined) return []
  return typeof value === 'object' ? value : [String(value)]
}
