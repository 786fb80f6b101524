import type { Json } from '../gateway.ts'

/**
 * Reads members of an object as Go's `encoding/json` does into a struct with these fields, and as C# and Java do where
 * they ignore case: by Unicode's simple case folding, and of several the last. `null` leaves a field as it was.
 */
export function foldingRead(value: Json, fields: readonly string[]): Json {
  const read: Record<string, unknown> = {}
  if (typeof value !== 'object' || value === null) return read
  for (const [name, member] of Object.entries(value)) {
    const field = fields.includes(name) ? name : fields.find((one) => foldsOnto(name, one))
    if (field !== undefined && member !== null) read[field] = member
  }
  return read
}

// The regular expressions of ECMAScript fold so where they ignore case: a reader by another hand than the gateway's.
const foldsOnto = (name: string, field: string): boolean =>
  name.length === field.length && new RegExp(`^${field.replace(/[^\w]/g, '\\$&')}$`, 'iu').test(name)

/** The tool that a folding server runs, and with which arguments. */
export function foldingCall(message: Json): { readonly name: unknown; readonly arguments: unknown } {
  const { params } = foldingRead(message, ['jsonrpc', 'id', 'method', 'params'])
  const { name, arguments: args } = foldingRead(params as Json, ['_meta', 'name', 'arguments'])
  return { name, arguments: args }
}

/**
 * Reads the arguments of a call as FastMCP does: text of an argument whose annotation is not text alone is read as JSON,
 * and is what it says where that is null, a list or an object. What its annotation (`taken`, by name) does not take is
 * an error, so nothing runs: the text is given back.
 */
export function fastMcpRead(args: Json, taken: Readonly<Record<string, readonly string[]>>): Json {
  const read = Object.entries(args).map(([name, value]) => {
    const parsed = typeof value === 'string' && name in taken ? parsedOr(value) : value
    return [name, taken[name]?.includes(kindOf(parsed)) ? parsed : value]
  })
  return Object.fromEntries(read)
}

function parsedOr(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

const kindOf = (value: unknown): string =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
