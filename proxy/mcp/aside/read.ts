import { createHash, hash } from 'node:crypto'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { type JsonScan, scanJson } from '../../../plugins/json-body/scan.ts'
import type { Refusal } from '../../../plugins/refusal.ts'
import { canonicalizeArguments, paramsInvalid } from '../protocol/json-text.ts'
import type { McpThreadTasks } from './messages.ts'

/** The most members of one object with a place of their own. A thousand times as many as MCP knows. */
const MAX_SPANS = 1_000

export const readParams: McpThreadTasks['readParams'] = ({ params, member, without, salt }) => {
  const bytes = bufferOf(params)
  const scan = scanJson(bytes, 1)
  if (scan.escapedNames && typeof params !== 'string') return null
  const value = exactObject(bytes, scan)
  if (value === null || scan.spans.size > MAX_SPANS) throw invalid()
  const canonical = Buffer.from(canonicalizeArguments(judgedParams(value, member, without)))
  return {
    commitment: createHash('sha256').update(salt, 'hex').update(canonical).digest('hex'),
    sha256: hash('sha256', canonical),
    bytes: canonical.length,
    spans: scan.spans,
  }
}

function judgedParams(
  params: UnknownRecord,
  member: 'arguments' | null,
  without: readonly string[],
): UnknownRecord {
  if (member === null) {
    const out = new Set(['_meta', ...without])
    return Object.fromEntries(Object.entries(params).filter(([name]) => !out.has(name)))
  }
  const { [member]: given = {} } = params
  if (!isObject(given)) throw invalid()
  return given
}

/** Reads valid JSON text as an object. Null: it is none, or a name was misread (nodejs/node#63785). */
export function parseExactObject(text: Uint8Array | string): UnknownRecord | null {
  const bytes = bufferOf(text)
  return exactObject(bytes, scanJson(bytes, 1))
}

function exactObject(bytes: Buffer, { escapedNames }: Pick<JsonScan, 'escapedNames'>): UnknownRecord | null {
  const text = bytes.toString()
  const value: unknown = JSON.parse(text)
  if (escapedNames && JSON.stringify(value) !== text) return null
  return isObject(value) ? value : null
}

/** A copy came through the port: its memory is the thread's own. */
export const bufferOf = (text: Uint8Array | string): Buffer =>
  typeof text === 'string' ? Buffer.from(text) : Buffer.from(text.buffer, text.byteOffset, text.byteLength)

const invalid = (): Refusal => paramsInvalid('params cannot be told apart.')
