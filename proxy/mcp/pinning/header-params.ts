import type { IncomingHttpHeaders } from 'node:http'
import { isObject } from '../../../db/support/json.ts'
import { printJsonPath } from '../../visible.ts'
import type { HeaderParam } from '../aside/messages.ts'
import { decodeHeaderValue, encodeHeaderValue } from '../protocol/header-values.ts'
import { subschemas } from '../schema/subschemas.ts'

type HeaderParamType = HeaderParam['type']

const ANNOTATION = 'x-mcp-header'
const TOKEN = /^[!#$%&'*+.^_`|~\w-]+$/
const TYPES: ReadonlySet<unknown> = new Set<HeaderParamType>(['boolean', 'integer', 'string'])

/**
 * Finds the arguments that headers repeat, by the annotations of a tool's inputSchema. Throws an Error with
 * one sentence if an annotation breaks the rules. Expects a document no deeper than a stack.
 */
export function headerParams(inputSchema: unknown): readonly HeaderParam[] {
  if (!isObject(inputSchema)) return []
  const params = new Map<string, HeaderParam>()
  for (const { schema, path, properties } of subschemas(inputSchema)) {
    if (!Object.hasOwn(schema, ANNOTATION)) continue
    const { [ANNOTATION]: name, type } = schema
    const fault = (problem: string): Error =>
      new Error(`${printJsonPath(path) || 'the schema'}: ${ANNOTATION} ${problem}`)
    if (!properties || properties.length === 0) throw fault('may only stand below properties')
    if (typeof name !== 'string' || !TOKEN.test(name)) throw fault('must be the rest of a header name')
    if (!isType(type)) throw fault('demands the type string, integer or boolean')
    const header = `mcp-param-${name.toLowerCase()}`
    if (params.has(header)) throw fault('is there twice')
    params.set(header, { header, path: properties, type })
  }
  return [...params.values()]
}

const isType = (type: unknown): type is HeaderParamType => TYPES.has(type)

/**
 * Compares the headers that repeat arguments with the arguments. Returns null, or one sentence that names the
 * header and no value. Integers are compared as numbers, all else as text. Does NOT look at headers that no
 * annotation names.
 */
export function headerParamFault(
  params: readonly HeaderParam[],
  headers: IncomingHttpHeaders,
  args: unknown,
): string | null {
  for (const param of params) {
    const { [param.header]: header } = headers
    const value = valueAt(args, param.path)
    const name = `${param.header} of ${printJsonPath(param.path)}`
    if (value === undefined || value === null) {
      if (header !== undefined) return `The header ${name} is there, but its argument is not.`
      continue
    }
    if (header === undefined) return `The header ${name} is missing.`
    const decoded = typeof header === 'string' ? decodeHeaderValue(header) : null
    if (decoded === null) return `The header ${name} is not encoded as it must be.`
    if (!repeats(decoded, value, param.type)) return `The header ${name} does not match its argument.`
  }
  return null
}

/**
 * Makes the headers that repeat these arguments for an upstream. A value that a header cannot carry has none.
 */
export function headerParamHeaders(params: readonly HeaderParam[], args: unknown): Record<string, string> {
  const headers: Record<string, string> = {}
  for (const { header, path } of params) {
    const text = textOf(valueAt(args, path))
    if (text !== null) headers[header] = encodeHeaderValue(text)
  }
  return headers
}

/** Own members only: an argument named `constructor` is absent until somebody sends one. */
function valueAt(args: unknown, path: readonly string[]): unknown {
  let value = args
  for (const name of path) {
    if (!isObject(value) || !Object.hasOwn(value, name)) return undefined
    value = value[name]
  }
  return value
}

// Without leading zeros and exponents: others may read those as another number.
const DECIMAL = /^-?(?:0|[1-9]\d*)(?:\.0+)?$/

function repeats(decoded: string, value: unknown, type: HeaderParamType): boolean {
  const text = textOf(value)
  if (type !== 'integer' || typeof value !== 'number') return decoded === text
  return text !== null && DECIMAL.test(decoded) && Number(decoded) === value
}

function textOf(value: unknown): string | null {
  if (typeof value === 'string') return value
  if (typeof value === 'boolean') return String(value)
  return typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : null
}
