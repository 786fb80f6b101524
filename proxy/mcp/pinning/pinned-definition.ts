import { LRUCache } from 'lru-cache'
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

interface Cached extends PinnedDefinition {
  readonly text: string
}

// By resource and name. An entry is believed while its text is the same, so dropping one decides nothing.
const cache = new LRUCache<string, Cached>({ max: 5_000 })

/** Takes the pinned definition of a tool apart, once for as long as it stays what it is. */
export function definitionOf(tool: McpTool): PinnedDefinition {
  const { resource_id, name, definition: text, digest } = tool
  if (text === null) throw new Error(`the tool ${name} was never approved`)
  const key = `${resource_id} ${name}`
  const known = cache.get(key)
  if (known?.text === text) return known
  const object = readObject(Buffer.from(text))
  const { inputSchema } = object.value
  const made = { text, digest, inputSchema, headerParams: annotated(inputSchema), object }
  cache.set(key, made)
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
