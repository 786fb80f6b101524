import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'
import type { McpTool } from '../../../db/mcp/tools.ts'
import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { scanJson } from '../../../plugins/json-body/scan.ts'
import { escapeHidden, truncateText } from '../../visible.ts'
import type { JudgedTool, ToolCandidate, ToolFindings, ToolJudgement } from '../aside/messages.ts'
import { mistakenMembers, TOOL_MEMBERS } from '../protocol/known-members.ts'
import { unsoundMembers } from '../protocol/sound-items.ts'
import type { ListReading, RawTool } from '../upstream/tools.ts'
import { definitionChanges } from './tool-changes.ts'
import { toolFlags } from './tool-flags.ts'

export type ListedTool = RawTool & JudgedTool

// MCP only recommends a form of names; this one is ambiguous in no header, log or table.
const NAME = /^[\x21-\x7e]{1,128}$/
const EARLIER_PINNED = ['name', 'title', 'description', 'inputSchema', 'outputSchema', 'annotations']
/** The part of a definition, JSON text, that the digest of an earlier version covers. */
export const earlierPart = (definition: string): string =>
  JSON.stringify(pickMembers(JSON.parse(definition), EARLIER_PINNED))

const MAX_FOLDED_FLAGS = 8
const MAX_FOLDED_FLAG = 120

/** Judges the tools of a list; skips odd ones. Does not judge an approved or waiting text again. */
export async function judgeTools(
  { tools, skipped }: Pick<ListReading, 'tools' | 'skipped'>,
  known: readonly McpTool[],
  judge: (asked: ToolCandidate) => ToolJudgement | Promise<ToolJudgement>,
): Promise<readonly ListedTool[]> {
  const rows = new Map(known.map((row) => [row.name, row]))
  const judged: ListedTool[] = []
  for (const { name, text } of tools) {
    const row = rows.get(name)
    const standing = standingOf(row)
    const { digest: known = null, earlier: earlierKnown = null } = standing ?? {}
    const asked = { text, pinned: row?.definition ?? null, known, earlierKnown }
    // A pin of an earlier version is to get its whole digest.
    const isSame = earlierKnown === null && standing?.text === text
    const found = isSame ? { digest: standing.digest, earlierDigest: null, news: null } : await judge(asked)
    if ('odd' in found) skipped.add(name, found.odd)
    else judged.push({ name, text, ...found })
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
 * Judges a tool of a list that an upstream gave. Takes up to a second. A tool is odd if its name is not 1 to
 * 128 visible ASCII characters, its `inputSchema` is not the schema of an object, or its definition is JSON
 * that two readers could take for two things.
 */
export function judgeTool({ text, pinned, known, earlierKnown }: ToolCandidate): ToolJudgement {
  const bytes = Buffer.from(text)
  const value: unknown = JSON.parse(text)
  const odd = oddityOf(value)
  if (odd !== null || !isObject(value)) return { odd: odd ?? 'it is not an object' }
  const digests = digestsOf(bytes, value)
  if (digests === null) return { odd: 'its definition is not unambiguous JSON' }
  const { digest, earlier } = digests
  // No deeper than a stack by now.
  const folded = mistakenMembers(value, TOOL_MEMBERS)
  const earlierDigest = folded.length === 0 ? earlier : null
  const isKnown = digest === known || (earlierDigest !== null && earlierDigest === earlierKnown)
  if (isKnown) return { digest, earlierDigest, news: null }
  const flags = [...foldedFlags(folded), ...unsoundFlags(value), ...toolFlags(value)]
  return { digest, earlierDigest, news: { flags, changes: definitionChanges(pinned, value) } }
}

function oddityOf(value: unknown): string | null {
  if (!isObject(value)) return 'it is not an object'
  const { name, inputSchema } = value
  if (typeof name !== 'string' || name === '') return 'it has no name'
  if (!NAME.test(name)) return nameFault(name)
  if (inputSchema === undefined) return 'it has no inputSchema'
  if (!isObject(inputSchema)) return 'its inputSchema is not an object'
  if (inputSchema.type !== 'object') return 'its inputSchema does not say "type": "object", as MCP demands'
  const { properties = {}, required = [] } = inputSchema
  if (!isObject(properties)) return 'the properties of its inputSchema are not an object'
  if (!Array.isArray(required) || !required.every((one) => typeof one === 'string'))
    return 'required of its inputSchema is not a list of names'
  return null
}

function nameFault(name: string): string {
  if (name.length > 128) return 'its name is longer than 128 characters'
  return 'its name has characters besides visible ASCII'
}

/** Returns the digest of a definition: lower-case hex SHA-256 of its canonical form (RFC 8785). */
const definitionDigest = (definition: UnknownRecord): string =>
  createHash('sha256')
    .update(canonicalize(definition) ?? '')
    .digest('hex')

const pickMembers = (value: UnknownRecord, names: readonly string[]): UnknownRecord =>
  Object.fromEntries(names.flatMap((name) => (Object.hasOwn(value, name) ? [[name, value[name]]] : [])))

const FOLDED = 'folded_member:'

/**
 * Tells whether a definition has members that another reader takes for known ones; no reading approves it.
 */
export const hasFoldedMembers = ({ flags }: Pick<ToolFindings, 'flags'>): boolean =>
  flags.some((flag) => flag.startsWith(FOLDED))

const foldedFlags = (paths: readonly string[]): readonly string[] =>
  paths
    .slice(0, MAX_FOLDED_FLAGS)
    .map((path) => `${FOLDED}${truncateText(escapeHidden(path), MAX_FOLDED_FLAG)}`)

/** A known member stays here if it has another type than MCP gives it: callers get the others. */
const unsoundFlags = (definition: UnknownRecord): readonly string[] =>
  unsoundMembers(definition).map((name) => `member_left_out:${name}`)

function digestsOf(bytes: Buffer, value: UnknownRecord): { digest: string; earlier: string } | null {
  try {
    // The text is listed, the value is judged: a member twice would make them two tools.
    const { escapedNames } = scanJson(bytes)
    // V8 may have read an escaped name as another one (nodejs/node#63785); the text was written by it.
    if (escapedNames && JSON.stringify(value) !== bytes.toString()) return null
    return { digest: definitionDigest(value), earlier: definitionDigest(pickMembers(value, EARLIER_PINNED)) }
  } catch {
    return null
  }
}
