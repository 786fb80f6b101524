import { hash } from 'node:crypto'
import type { Selectable } from 'kysely'
import type { Schema } from '../schema.ts'

/**
 * A row as the database holds it: `detail` is canonical JSON text, `leaf` the bytes that `row_hash` is the
 * digest of.
 */
export type StoredRow = Selectable<Schema['audit_log']>

/** The fields of the leaf: the row without its own hash. */
export type LeafFields = Omit<StoredRow, 'row_hash' | 'leaf'>

/** The one stream of a single process (docs/ledger.md, Streams). */
export const MAIN_STREAM = 'main'

/** `prev_hash` of the first row of a stream. */
export const GENESIS = '0'.repeat(64)

/** What a leaf says of its own form, in `v` (docs/ledger.md#versions). */
export type LeafVersion = 1 | 2

/** The version of the rows that are written. Both are read. */
const WRITTEN: LeafVersion = 2

/**
 * The canonical bytes (RFC 8785) of a row without `row_hash`, with its version (docs/ledger.md#row).
 * `detail` must be canonical already: it goes in as it stands. Does NOT check any value.
 */
export const leafOf = (row: LeafFields, version: LeafVersion = WRITTEN): string =>
  upToRequestId(row) + fromSeq(row, version)

/** Reads the version that a leaf says; null where it says none that is known. */
export function leafVersion(leaf: string): LeafVersion | null {
  // The last: behind it stands one text, in which no quotation mark is bare.
  const at = leaf.lastIndexOf(',"v":')
  if (leaf.startsWith('2,', at + 5)) return 2
  return leaf.startsWith('1,', at + 5) ? 1 : null
}

/** `row_hash`: hex SHA-256 of the leaf. */
export const hashOf = (leaf: string): string => hash('sha256', leaf)

/** The readable ids of the users that a row names by their pseudonyms, as far as they still exist. */
export interface Names {
  readonly principal_name?: string | undefined
  readonly subject_name?: string | undefined
}

/**
 * Returns one line of an export, without the line feed: the leaf with `row_hash` in its sorted place, with
 * `result`, which says what `status` says, in rows of the MCP path, and with the names. Leave those four out
 * of the parsed object, write the rest by RFC 8785, and you have the leaf: a second implementation needs no
 * more than the line.
 */
export function exportLine(row: StoredRow, names: Names = {}): string {
  const version = leafVersion(row.leaf) ?? WRITTEN
  return upToRequestId(row, names) + sealOf(row) + fromSeq(row, version, names)
}

/** Returns what an export line holds of `result` and `row_hash`. */
export function sealOf(row: Pick<StoredRow, 'action' | 'status' | 'row_hash'>): string {
  const result = ofMcpPath(row) ? `,"result":${JSON.stringify(row.status)}` : ''
  return `${result},"row_hash":${JSON.stringify(row.row_hash)}`
}

/** Returns what an export line holds of a name; nothing where there is none. */
export const nameMember = (member: keyof Names, name: string | undefined): string =>
  name === undefined ? '' : `,"${member}":${JSON.stringify(name)}`

export const ofMcpPath = ({ action }: { readonly action: string }): boolean => action.startsWith('mcp_')

// The names stand in the order of their UTF-16 code units, which is RFC 8785's; JSON.stringify writes strings
// and integers exactly as it demands. A template takes a third of the time that a general canonicaliser
// takes.
function upToRequestId(row: LeafFields, names: Names = {}): string {
  const json = JSON.stringify
  return (
    `{"action":${json(row.action)},"cert_thumbprint":${json(row.cert_thumbprint)},"config_digest":${json(row.config_digest)},` +
    `"detail":${row.detail},"dpop_jkt":${json(row.dpop_jkt)},"model":${json(row.model)},"prev_hash":${json(row.prev_hash)},` +
    `"principal_id":${json(row.principal_id)}${nameMember('principal_name', names.principal_name)},` +
    `"principal_type":${json(row.principal_type)},"provider":${json(row.provider)},` +
    `"recorded_at":${json(row.recorded_at)},"request_id":${json(row.request_id)}`
  )
}

function fromSeq(row: LeafFields, version: LeafVersion, names: Names = {}): string {
  const json = JSON.stringify
  return (
    `,"seq":${json(row.seq)},"status":${json(row.status)},"stream":${json(row.stream)}${nameMember('subject_name', names.subject_name)},"tool":${json(row.tool)},` +
    `"v":${version},"version":${json(row.version)}}`
  )
}
