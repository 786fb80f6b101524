import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { McpTool } from '../../../db/mcp/tools.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { scanJson } from '../../../plugins/json-body/scan.ts'
import { escapeHidden, truncateText } from '../../visible.ts'
import { mistakenMembers, TOOL_MEMBERS } from '../protocol/known-members.ts'
import type { RawTool } from '../upstream/tools.ts'
import { definitionChanges } from './tool-changes.ts'
import { toolFlags } from './tool-flags.ts'

/** A definition of a tool, to be judged. */
export interface ToolCandidate {
  /** JSON of an object, as the upstream wrote it: fields that nobody knows are still in it. */
  readonly text: string
  /** The place in its list, from 0. */
  readonly index: number
  /** The approved definition of that tool, or null. */
  readonly pinned: string | null
  /** The digest of the definition that is as it was, or null. */
  readonly known: string | null
  /** The same, as {@link JudgedTool.earlierDigest} has it. */
  readonly earlierKnown: string | null
}

/** A definition that was judged. */
export interface JudgedTool {
  /** Lower-case hex SHA-256 of the canonical form (RFC 8785) of the whole definition. */
  readonly digest: string
  /**
   * The same of six members alone, which versions before 0.7 approved: a pin of theirs holds until one of
   * these changes. Null if a member folds onto a known one, which no such pin may cover.
   */
  readonly earlierDigest: string | null
  /** Null if the digest is the known one: then there is nothing to tell. */
  readonly news: ToolFindings | null
}

/** Findings on a definition for an operator. */
interface ToolFindings {
  /** The members that fold onto known ones, and {@link toolFlags}. */
  readonly flags: readonly string[]
  /** {@link definitionChanges} the pinned definition. */
  readonly changes: readonly string[]
}

/** A tool of a list, judged. */
export type ListedTool = RawTool & JudgedTool

const MAX_BYTES = 256 * 1024
// MCP only recommends a form of names; this one is ambiguous in no header, log or table.
const NAME = /^[\x21-\x7e]{1,128}$/
const EARLIER_PINNED = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations']
const MAX_FOLDED_FLAGS = 8
const MAX_FOLDED_FLAG = 120

/**
 * Judges the tools of a list one by one, by `judge`, which is {@link judgeTool} wherever it runs. A text that
 * is the approved one of its tool, or the one that waits, is not judged again.
 */
export async function judgeTools(
  tools: readonly RawTool[],
  known: readonly McpTool[],
  judge: (asked: ToolCandidate) => JudgedTool | Promise<JudgedTool>,
): Promise<readonly ListedTool[]> {
  const rows = new Map(known.map((row) => [row.name, row]))
  const judged: ListedTool[] = []
  for (const [index, { name, text }] of tools.entries()) {
    const row = rows.get(name)
    const standing = standingOf(row)
    const { digest: known = null, earlier: earlierKnown = null } = standing ?? {}
    const asked = { text, index, pinned: row?.definition ?? null, known, earlierKnown }
    const isSame = standing?.text === text
    const found = isSame ? { digest: standing.digest, earlierDigest: null, news: null } : await judge(asked)
    judged.push({ name, text, ...found })
  }
  return judged
}

/**
 * The definition that leaves a row as it is: the approved one, or the one that waits. One that waits by the
 * digest of an earlier version leaves nothing as it is: it is to wait by its whole text.
 */
function standingOf(
  row: McpTool | undefined,
): { readonly text: string; readonly digest: string; readonly earlier: string | null } | null {
  if (row?.state === 'approved' && row.digest !== null) {
    return { text: row.definition, digest: row.digest, earlier: row.digest_is_whole ? null : row.digest }
  }
  if (row?.state !== 'quarantined' || row.pending_digest === null || !row.pending_is_whole) return null
  return { text: row.pending_definition ?? '', digest: row.pending_digest, earlier: null }
}

/**
 * Judges a tool of a list that an upstream gave. Takes up to a second, so only a thread that may do that
 * should. Throws an Error with one sentence, which holds nothing that the upstream could choose freely, if it
 * has no name or a name that is not 1 to 128 visible ASCII characters, the definition is larger than 256 KiB
 * or is JSON that two readers could take for two things, or `inputSchema` is not the schema of an object.
 */
export function judgeTool({ text, index, pinned, known, earlierKnown }: ToolCandidate): JudgedTool {
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
  const { digest, earlier } = digestsOf(name, bytes, value)
  // No deeper than a stack by now.
  const folded = mistakenMembers(value, TOOL_MEMBERS)
  const earlierDigest = folded.length === 0 ? earlier : null
  const isKnown = digest === known || (earlierDigest !== null && earlierDigest === earlierKnown)
  if (isKnown) return { digest, earlierDigest, news: null }
  const flags = [...foldedFlags(folded), ...toolFlags(value)]
  return { digest, earlierDigest, news: { flags, changes: definitionChanges(pinned, value) } }
}

/** Returns the digest of a definition: lower-case hex SHA-256 of its canonical form (RFC 8785). */
const definitionDigest = (definition: UnknownRecord): string =>
  createHash('sha256')
    .update(canonicalize(definition) ?? '')
    .digest('hex')

const pickMembers = (value: UnknownRecord, names: readonly string[]): UnknownRecord =>
  Object.fromEntries(names.flatMap((name) => (Object.hasOwn(value, name) ? [[name, value[name]]] : [])))

/** The beginning of the flag of a member that folds onto a known one. */
const FOLDED = 'folded_member:'

/**
 * Tells whether a definition has members that another reader takes for known ones. No reading approves such a
 * definition.
 */
export const hasFoldedMembers = ({ flags }: Pick<ToolFindings, 'flags'>): boolean =>
  flags.some((flag) => flag.startsWith(FOLDED))

const foldedFlags = (paths: readonly string[]): readonly string[] =>
  paths
    .slice(0, MAX_FOLDED_FLAGS)
    .map((path) => `${FOLDED}${truncateText(escapeHidden(path), MAX_FOLDED_FLAG)}`)

function digestsOf(name: string, bytes: Buffer, value: UnknownRecord): { digest: string; earlier: string } {
  try {
    // The text is listed, the value is judged: a member twice would make them two tools.
    const { escapedNames } = scanJson(bytes)
    // V8 may have read an escaped name as another one (nodejs/node#63785); the text was written by it.
    if (escapedNames && JSON.stringify(value) !== bytes.toString()) throw new Error('a name is misread')
    return { digest: definitionDigest(value), earlier: definitionDigest(pickMembers(value, EARLIER_PINNED)) }
  } catch (error) {
    throw new Error(`the definition of the tool ${name} is not unambiguous JSON`, { cause: error })
  }
}
