import { LRUCache } from 'lru-cache'
import type { PinnedMcpTool } from '../../../db/mcp/tools.ts'
import { callThreads, MAX_INLINE_BYTES } from '../aside/aside.ts'
import type { HeaderParam } from '../aside/messages.ts'
import { type JsonText, readObject } from '../protocol/json-text.ts'
import { hasModernOutput, soundTool } from '../protocol/sound-items.ts'
import { headerParams } from './header-params.ts'
import { earlierPart } from './tool-definition.ts'

export interface PinnedDefinition {
  readonly digest: string
  readonly text: string
  /** Undefined if the definition is larger than {@link MAX_INLINE_BYTES}. */
  readonly inputSchema: unknown
  /** Empty if the annotations break their rules: then no header repeats an argument. */
  readonly headerParams: readonly HeaderParam[]
  /** JSON, as callers get it: known members of the right types (docs/threats.md#h1b). */
  readonly listed: string
  /** {@link hasModernOutput} of it: older callers get it without its `outputSchema`. */
  readonly modernOutput: boolean
  readonly object: Pick<JsonText, 'bytes' | 'spans'>
}

// Keyed by resource and name. In memory a definition is some four times as long as its text.
const cache = new LRUCache<string, PinnedDefinition>({
  max: 5_000,
  maxSize: 32 * 1024 * 1024,
  sizeCalculation: ({ text, listed }) => text.length + (listed === text ? 0 : listed.length) + 1,
})

export function parsePinnedDefinition(tool: PinnedMcpTool): PinnedDefinition | Promise<PinnedDefinition> {
  const key = `${tool.resource_id} ${tool.name}`
  const known = cache.get(key)
  if (known?.text === tool.definition && known.digest === tool.digest) return known
  // Nothing is listed that its digest does not cover (docs/threats.md#h1b).
  const source = tool.digest_is_whole ? tool.definition : earlierPart(tool.definition)
  const bytes = Buffer.from(source)
  if (bytes.length > MAX_INLINE_BYTES) return parseLargeDefinition(key, tool, source)
  return cacheDefinition(key, tool, parseDefinition(bytes))
}

async function parseLargeDefinition(
  key: string,
  tool: PinnedMcpTool,
  source: string,
): Promise<PinnedDefinition> {
  const parts = await callThreads.ask('takeApart', source, { key: tool.resource_id })
  const { headerParams, modernOutput, spans } = parts
  const listed = parts.listed === source ? source : parts.listed
  const object = { bytes: Buffer.from(listed), spans }
  return cacheDefinition(key, tool, { inputSchema: undefined, headerParams, listed, modernOutput, object })
}

function cacheDefinition(
  key: string,
  { definition: text, digest }: PinnedMcpTool,
  parts: Omit<PinnedDefinition, 'text' | 'digest'>,
): PinnedDefinition {
  const made = { text, digest, ...parts }
  cache.set(key, made)
  return made
}

export function parseDefinition(bytes: Buffer): Omit<PinnedDefinition, 'text' | 'digest'> {
  const object = readObject(bytes)
  const { inputSchema } = object.value
  const text = bytes.toString()
  const sound = soundTool(object.value)
  const listed = JSON.stringify(sound)
  const modernOutput = hasModernOutput(sound)
  const parts = { inputSchema, headerParams: headerParamsOrNone(inputSchema), modernOutput }
  if (listed === text) return { ...parts, listed: text, object }
  return { ...parts, listed, object: readObject(Buffer.from(listed)) }
}

function headerParamsOrNone(inputSchema: unknown): readonly HeaderParam[] {
  try {
    return headerParams(inputSchema)
  } catch {
    // Told to the operator when it was pinned, as a flag of the tool.
    return []
  }
}
