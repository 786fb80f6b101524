import { LRUCache } from 'lru-cache'
import type { PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { calls, SMALL } from '../aside/aside.ts'
import { type JsonText, readObject } from '../protocol/json-text.ts'
import { type HeaderParam, headerParams } from './header-params.ts'

/** A pinned tool, taken apart once. */
export interface PinnedDefinition {
  readonly digest: string
  /** JSON, as it was pinned. */
  readonly text: string
  /** Undefined where the definition is larger than {@link SMALL}. */
  readonly inputSchema: unknown
  /** Empty where the annotations break their rules: then no header repeats an argument. */
  readonly headerParams: readonly HeaderParam[]
  readonly object: Pick<JsonText, 'bytes' | 'spans'>
}

// By resource and name. An entry is believed while its text is the same, so dropping one decides nothing. A
// definition in memory is some four times as long as its text.
const cache = new LRUCache<string, PinnedDefinition>({
  max: 5_000,
  maxSize: 32 * 1024 * 1024,
  sizeCalculation: ({ text }) => text.length + 1,
})

/** Takes the pinned definition of a tool apart, once for as long as it stays what it is. */
export function definitionOf(tool: PinnedMcpTool): PinnedDefinition | Promise<PinnedDefinition> {
  const key = `${tool.resource_id} ${tool.name}`
  const known = cache.get(key)
  if (known?.text === tool.definition) return known
  const bytes = Buffer.from(tool.definition)
  if (bytes.length > SMALL) return large(key, tool, bytes)
  return kept(key, tool, takenApart(bytes))
}

async function large(key: string, tool: PinnedMcpTool, bytes: Buffer): Promise<PinnedDefinition> {
  const { headerParams, spans } = await calls.ask('takeApart', tool.definition, { key: tool.resource_id })
  return kept(key, tool, { inputSchema: undefined, headerParams, object: { bytes, spans } })
}

function kept(
  key: string,
  { definition: text, digest }: PinnedMcpTool,
  parts: Omit<PinnedDefinition, 'text' | 'digest'>,
): PinnedDefinition {
  const made = { text, digest, ...parts }
  cache.set(key, made)
  return made
}

/** Takes a definition apart, JSON of an object. */
export function takenApart(bytes: Buffer): Omit<PinnedDefinition, 'text' | 'digest'> {
  const object = readObject(bytes)
  const { inputSchema } = object.value
  return { inputSchema, headerParams: annotated(inputSchema), object }
}

function annotated(inputSchema: unknown): readonly HeaderParam[] {
  try {
    return headerParams(inputSchema)
  } catch {
    // Told to the operator when it was pinned, as a flag of the tool.
    return []
  }
}
