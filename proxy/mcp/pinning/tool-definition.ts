import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import { isObject, type Members } from '../../../db/json.ts'
import type { McpTool } from '../../../db/mcp/tools.ts'
import { scanJson } from '../../../plugins/json-body/scan.ts'
import type { RawTool } from '../upstream/tools.ts'
import { changesOf } from './tool-changes.ts'
import { toolFlags } from './tool-flags.ts'

/** A definition of a tool, to be judged. */
export interface AskedTool {
  /** JSON of an object, as the upstream wrote it: fields that nobody knows are still in it. */
  readonly text: string
  /** The place in its list, from 0. */
  readonly index: number
  /** The approved definition of that tool, or null. */
  readonly pinned: string | null
  /** The digests of definitions that are as they were. */
  readonly known: readonly string[]
}

/** A definition that was judged. */
export interface JudgedTool {
  /**
   * Lower-case hex SHA-256 of the canonical form (RFC 8785) of the fields that a model and a gateway go by.
   */
  readonly digest: string
  /** Null where the digest is one of the known: then there is nothing to be told. */
  readonly news: ToolNews | null
}

/** What an operator should know of a definition. */
interface ToolNews {
  /** {@link toolFlags}. */
  readonly flags: readonly string[]
  /** {@link changesOf} the pinned definition. */
  readonly changes: readonly string[]
}

/** A tool of a list, judged. */
export type ListedTool = RawTool & JudgedTool

const MAX_BYTES = 256 * 1024
// MCP only recommends a form of names; this one is ambiguous in no header, log or table.
const NAME = /^[\x21-\x7e]{1,128}$/
const PINNED = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations']

/**
 * Judges the tools of a list one by one, by `judge`, which is {@link judgeTool} wherever it runs. A text that
 * is the approved one of its tool, or the one that waits, is not judged again.
 */
export async function judgeTools(
  tools: readonly RawTool[],
  known: readonly McpTool[],
  judge: (asked: AskedTool) => JudgedTool | Promise<JudgedTool>,
): Promise<readonly ListedTool[]> {
  const rows = new Map(known.map((row) => [row.name, row]))
  const judged: ListedTool[] = []
  for (const [index, { name, text }] of tools.entries()) {
    const row = rows.get(name)
    const standing = standingOf(row)
    const asked = { text, index, pinned: row?.definition ?? null, known: standing ? [standing.digest] : [] }
    const found = standing?.text === text ? { digest: standing.digest, news: null } : await judge(asked)
    judged.push({ name, text, ...found })
  }
  return judged
}

/** The definition that leaves a row as it is: the approved one, or the one that waits. */
function standingOf(row: McpTool | undefined): { text: string; digest: string } | null {
  if (row?.state === 'approved' && row.digest !== null) return { text: row.definition, digest: row.digest }
  if (row?.state !== 'quarantined' || row.pending_digest === null) return null
  return { text: row.pending_definition ?? '', digest: row.pending_digest }
}

/**
 * Judges a tool of a list that an upstream gave. Takes up to a second, so only a thread that may do that
 * should. Throws an Error with one sentence, which holds nothing that the upstream could choose freely, where
 * it has no name or a name that is not 1 to 128 visible ASCII characters, the definition is larger than
 * 256 KiB or is JSON that two readers could take for two things, or `inputSchema` is not the schema of an
 * object.
 */
export function judgeTool({ text, index, pinned, known }: AskedTool): JudgedTool {
  const bytes = Buffer.from(text)
  const value: unknown = JSON.parse(text)
  const place = `tool ${index + 1} of the list`
  if (!isObject(value)) throw new Error(`${place} is not an object`)
  const { name, inputSchema } = value
  if (typeof name !== 'string' || name === '') throw new Error(`${place} has no name`)
  if (!NAME.test(name)) throw new Error(`${place} has a name that is not 1 to 128 visible ASCII characters`)
  if (bytes.length > MAX_BYTES) throw new Error(`the definition of the tool ${name} is larger than 256 KiB`)
  if (!isObject(inputSchema) || inputSchema.type !== 'object') {
    throw new Error(`the inputSchema of the tool ${name} is not the schema of an object`)
  }
  const digest = digestOf(name, bytes, value)
  if (known.includes(digest)) return { digest, news: null }
  return { digest, news: { flags: toolFlags(value), changes: changesOf(pinned, value) } }
}

function digestOf(name: string, bytes: Buffer, value: Members): string {
  try {
    // The text is listed, the value is judged: a member twice would make them two tools.
    const { escapedNames } = scanJson(bytes)
    // V8 may have read an escaped name as another one (nodejs/node#63785); the text was written by it.
    if (escapedNames && JSON.stringify(value) !== bytes.toString()) throw new Error('a name is misread')
    const pinned = PINNED.filter((field) => Object.hasOwn(value, field)).map((field) => [field, value[field]])
    return createHash('sha256')
      .update(canonicalize(Object.fromEntries(pinned)) ?? '')
      .digest('hex')
  } catch (error) {
    throw new Error(`the definition of the tool ${name} is not unambiguous JSON`, { cause: error })
  }
}
