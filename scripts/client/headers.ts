import type { Dispatcher } from 'undici'

type DispatchHeaders = Dispatcher.DispatchOptions['headers']
type Value = string | number | readonly string[] | undefined

// The gateway knows its caller by certificate, token and proof. A key that an SDK insists on having goes
// nowhere, unless the gateway says that a provider is called with it.
const REPLACED = new Set(['authorization', 'x-api-key', 'dpop'])
/** The vendor's credentials among them, and the names under which the gateway takes them besides its own. */
const VENDOR_NAMES = new Map([
  ['authorization', 'sallyport-authorization'],
  ['x-api-key', 'sallyport-x-api-key'],
])

interface OwnCredentials {
  readonly headers: Readonly<Record<string, string>>
  readonly vendorKeys: boolean
}

/**
 * Returns the caller's headers without its own credentials, then ours: names and values in turn. Takes every
 * form that an HTTP client hands to undici: an object, names and values in turn, or pairs.
 */
export function withCredentials(headers: DispatchHeaders, ours: OwnCredentials): string[] {
  const all = [...pairs(headers)]
  const isOurs = (name: string): boolean => [...VENDOR_NAMES.values()].includes(name)
  const kept = all.filter(([name]) => !REPLACED.has(name.toLowerCase()) && !isOurs(name.toLowerCase()))
  const vendor = ours.vendorKeys
    ? all.flatMap(([name, value]): [string, Value][] => {
        const renamed = VENDOR_NAMES.get(name.toLowerCase())
        return renamed === undefined ? [] : [[renamed, value]]
      })
    : []
  return [...kept, ...vendor, ...Object.entries(ours.headers)].flatMap(([name, value]) =>
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
