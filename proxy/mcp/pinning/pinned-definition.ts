import type { McpTool } from '../../../db/mcp/tools.ts'
import { type JsonText, readObject } from '../protocol/json-text.ts'
import { type HeaderParam, headerParams } from './header-params.ts'

/** A pinned tool, taken apart once. */
export interface PinnedDefinition {
  readonly digest: string
  readonly inputSchema: unknown
  /** Empty where the annotations break their rules: then no header repeats an argument. */
  readonly headerParams: readonly HeaderParam[]
  /** As the upstream wrote it. */
  readonly object: JsonText
}

interface Kept extends PinnedDefinition {
  readonly text: string
}

const CACHE_MAX = 5_000
const kept = new Map<string, Kept>()

/** The definition of a tool that was approved at some time. Taken apart once for as long as it stays what it is. */
export function definitionOf({ resource_id, name, definition: text, digest }: McpTool): PinnedDefinition {
  const key = `${resource_id} ${name}`
  const known = kept.get(key)
  if (known?.text === text) return known
  const object = readObject(Buffer.from(text))
  const { inputSchema } = object.value
  const made = { text, digest, inputSchema, headerParams: annotated(inputSchema), object }
  kept.delete(key)
  const [oldest] = kept.keys()
  if (kept.size >= CACHE_MAX && oldest !== undefined) kept.delete(oldest)
  kept.set(key, made)
  return made
}

function annotated(inputSchema: unknown): readonly HeaderParam[] {
  try {
    return headerParams(inputSchema)
  } catch {
    // Told to the operator when it was pinned, as a flag of the tool.
    return []
  }
}
