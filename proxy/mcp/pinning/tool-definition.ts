import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { isObject } from '../../../db/json.ts'
import { scanJson } from '../../../plugins/json-body/scan.ts'
import { toolFlags } from './tool-flags.ts'

/** A tool as its upstream defines it. */
export interface ToolDefinition {
  readonly name: string
  /** JSON, as the upstream wrote it: fields that nobody knows are still in it. */
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
  /**
   * Lower-case hex SHA-256 of the canonical form (RFC 8785) of the fields that a model and a gateway go by.
   */
  readonly digest: string
  /** Warnings for an operator: {@link toolFlags}. */
  readonly flags: readonly string[]
}

interface RawTool {
  readonly text: string
  readonly value: Readonly<Record<string, unknown>>
}

const MAX_BYTES = 256 * 1024
// MCP only recommends a form of names; this one is ambiguous in no header, log or table.
const NAME = /^[\x21-\x7e]{1,128}$/
const PINNED = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations']

/**
 * Reads the tools of a list that an upstream gave, one by one, since each may take some ten milliseconds and
 * there may be thousands; `value` is `text` parsed. Throws an Error with one sentence, which holds nothing
 * that the upstream could choose freely, where one has no name or a name that is not 1 to 128 visible ASCII
 * characters, a name is there twice, a definition is larger than 256 KiB or is JSON that two readers could
 * take for two things, or `inputSchema` is not the schema of an object.
 */
export function* readTools(raw: readonly RawTool[]): Generator<ToolDefinition> {
  const names = new Set<string>()
  for (const [index, one] of raw.entries()) {
    const tool = readTool(one, index)
    if (names.has(tool.name)) throw new Error(`the tool ${tool.name} is listed twice`)
    names.add(tool.name)
    yield tool
  }
}

function readTool({ text, value }: RawTool, index: number): ToolDefinition {
  const place = `tool ${index + 1} of the list`
  const { name, inputSchema } = value
  if (typeof name !== 'string' || name === '') throw new Error(`${place} has no name`)
  if (!NAME.test(name)) throw new Error(`${place} has a name that is not 1 to 128 visible ASCII characters`)
  const bytes = Buffer.from(text)
  if (bytes.length > MAX_BYTES) throw new Error(`the definition of the tool ${name} is larger than 256 KiB`)
  if (!isObject(inputSchema) || inputSchema.type !== 'object') {
    throw new Error(`the inputSchema of the tool ${name} is not the schema of an object`)
  }
  return { name, text, value, digest: digestOf(name, bytes, value), flags: toolFlags(value) }
}

function digestOf(name: string, bytes: Buffer, value: RawTool['value']): string {
  try {
    // The text is listed, the value is judged: a member twice would make them two tools.
    scanJson(bytes)
    const pinned = PINNED.filter((field) => Object.hasOwn(value, field)).map((field) => [field, value[field]])
    return createHash('sha256')
      .update(canonicalize(Object.fromEntries(pinned)) ?? '')
      .digest('hex')
  } catch (error) {
    throw new Error(`the definition of the tool ${name} is not unambiguous JSON`, { cause: error })
  }
}
