import { hash } from 'node:crypto'
import type { Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type ExportAdditions, type LeafPieces, leafText, WRITTEN_LEAF_VERSION } from './draft.ts'

/**
 * A row as the database holds it: `detail` is canonical JSON text, `leaf` the bytes that `row_hash` is the
 * digest of.
 */
export type StoredRow = Selectable<DatabaseSchema['audit_log']>

export const SHOWN_COLUMNS = [
  ...([
    'stream',
    'seq',
    'recorded_at',
    'request_id',
    'principal_id',
    'principal_type',
    'action',
    'status',
  ] as const),
  ...(['tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt', 'detail', 'config_digest'] as const),
  ...(['version', 'prev_hash', 'row_hash'] as const),
]

export type LeafFields = Omit<StoredRow, 'row_hash' | 'leaf'>

/** The one stream of a single process (docs/ledger.md, Streams). */
export const MAIN_STREAM = 'main'

/** `prev_hash` of the first row of a stream. */
export const GENESIS_HASH = '0'.repeat(64)

/** The version in a leaf's `v` (docs/ledger.md#versions). Both are read. */
export type LeafVersion = 1 | 2

export const assembleLeaf = (
  { beforePrev, beforeSeq, afterSeq }: LeafPieces,
  prevHash: string,
  seq: number,
): string => beforePrev + JSON.stringify(prevHash) + beforeSeq + JSON.stringify(seq) + afterSeq

/**
 * The canonical bytes (RFC 8785) of a row without `row_hash`, with its version (docs/ledger.md#row).
 * `detail` must be canonical already: it goes in as it stands. Does NOT check any value.
 */
export const leafOf = (row: LeafFields, version: LeafVersion = WRITTEN_LEAF_VERSION): string =>
  textOf(row, version)

// No caller has a bare quotation mark in the texts before detail, so the first of this name is the row's.
const textOf = (row: LeafFields, version: LeafVersion, more?: ExportAdditions): string =>
  leafText({ ...row, detail: 0 }, version, more).replace(',"detail":0', () => `,"detail":${row.detail}`)

/** Reads the version that a leaf says; null if it says none that is known. */
export function leafVersion(leaf: string): LeafVersion | null {
  // The last: one text follows it, without a bare quotation mark.
  const at = leaf.lastIndexOf(',"v":')
  if (leaf.startsWith('2,', at + 5)) return 2
  return leaf.startsWith('1,', at + 5) ? 1 : null
}

/** The text of a member that stands once in a leaf, after `detail`; null if it is none. */
export function leafMemberText(leaf: string, member: 'recorded_at' | 'request_id' | 'status'): string | null {
  const name = `"${member}":"`
  const at = leaf.lastIndexOf(name)
  return at < 0 ? null : leaf.slice(at + name.length, leaf.indexOf('"', at + name.length))
}

/** `row_hash`: hex SHA-256 of the leaf. */
export const hashOf = (leaf: string): string => hash('sha256', leaf)

export interface ReadableNames {
  readonly principal_name?: string | undefined
  readonly subject_name?: string | undefined
}

/**
 * Returns one line of an export, without the line feed: the leaf with `row_hash` in its sorted place, with
 * `result`, which says what `status` says, in rows of the MCP path, and with the names. Leave those four out
 * of the parsed object, write the rest by RFC 8785, and you have the leaf: a second implementation needs no
 * more than the line.
 */
export function exportLine(row: StoredRow, names: ReadableNames = {}): string {
  const result = isMcpPathRow(row) ? row.status : undefined
  return textOf(row, leafVersion(row.leaf) ?? WRITTEN_LEAF_VERSION, {
    ...names,
    result,
    row_hash: row.row_hash,
  })
}

export function sealOf(row: Pick<StoredRow, 'action' | 'status' | 'row_hash'>): string {
  const result = isMcpPathRow(row) ? `,"result":${JSON.stringify(row.status)}` : ''
  return `${result},"row_hash":${JSON.stringify(row.row_hash)}`
}

export const nameMember = (member: keyof ReadableNames, name: string | undefined): string =>
  name === undefined ? '' : `,"${member}":${JSON.stringify(name)}`

export const isMcpPathRow = ({ action }: { readonly action: string }): boolean => action.startsWith('mcp_')
