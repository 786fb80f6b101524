import type { Database } from '../../../db/database.ts'
import { ledgerRows } from '../../../db/ledger/read/read.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import {
  exportLine,
  GENESIS_HASH,
  hashOf,
  type LeafVersion,
  leafOf,
  type StoredRow,
} from '../../../db/ledger/record/leaf.ts'
import { type RecomputationReport, recomputer } from '../../../db/ledger/verify/recompute.ts'
import { placedPages } from '../../../db/postgres/ledger/placed-rows.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { AT, entry, rowOf } from './scratch-ledger.ts'

/** Turns entries into a chain with real hashes, as the writer would. `versions`: where it is not 2 for all. */
export function chainOf(
  entries: readonly LedgerEntry[],
  versions: readonly LeafVersion[] = [],
): readonly StoredRow[] {
  const next = chainer()
  return entries.map((made, index) => next(made, versions[index]))
}

/** The same, row by row. */
export function chainer(): (entry: LedgerEntry, version?: LeafVersion) => StoredRow {
  let [previous, seq] = [GENESIS_HASH, 0]
  return (made, version = 2) => {
    seq += 1
    const row = rowOf(made, seq, previous)
    const leaf = leafOf(row, version)
    previous = hashOf(leaf)
    return { ...row, row_hash: previous, leaf }
  }
}

/** What recomputing every decision of these rows comes to. */
export function recomputed(rows: readonly StoredRow[]): RecomputationReport {
  const walk = recomputer()
  for (const row of rows) walk.add(row)
  return walk.result()
}

/** Every row of a database, in the order that its engine gives them. */
export const allRows = ({
  kysely,
  engine,
}: Pick<Database, 'kysely' | 'engine'>): ReturnType<typeof ledgerRows> =>
  ledgerRows(kysely, engine === 'postgres' ? { pages: placedPages } : {})

export const exportOf = (rows: readonly StoredRow[]): string =>
  rows.map((row) => `${exportLine(row)}\n`).join('')

export const BOT = 'acme::bot'
export const THUMBPRINT = 'ab'.repeat(32)
export const JKT = 'k'.repeat(43)
export const MODE = { egress_dpop_mode: 'optional', no_downgrade: false }
export const CONFIGURATION = { ...MODE, enforce_tools_call: false, list: 'bound', checks: [] }

/** A row of the service or of an operator. */
export const note = (
  action: string,
  detail: JsonObject = {},
  values: Partial<LedgerEntry> = {},
): LedgerEntry => entry({ ...NOBODY, action, status: 'success', detail, ...values })

const NOBODY = {
  request_id: null,
  principal_id: null,
  principal_type: null,
  model: null,
  cert_thumbprint: null,
}

export const started = note('service.started', { node: '24' })
export const loaded = (more: JsonObject = {}, values: Partial<LedgerEntry> = {}): LedgerEntry =>
  note('config.loaded', { ...CONFIGURATION, ...more }, values)

/** A row that changes a principal, with the whole state that it makes. */
export const changed = (action: string, revision: number, more: JsonObject = {}): LedgerEntry =>
  note(action, {
    subject: BOT,
    revision,
    capabilities: ['llm.chat'],
    is_active: true,
    thumbprints: [[THUMBPRINT, null]],
    dpop_jkts: [],
    ...more,
  })

/** A row that changes the resource `files`. */
export const resource = (action: string, revision: number, more: JsonObject = {}): LedgerEntry =>
  note(`mcp_resource.${action}`, {
    resource_id: 'mcpr_1',
    name: 'files',
    revision,
    required_capability: 'files.use',
    tool_capabilities: {},
    enabled: true,
    ...more,
  })

export const binding = (action: 'created' | 'revoked', more: JsonObject = {}): LedgerEntry =>
  note(`mcp_binding.${action}`, { binding: 'mcpb_1', subject: BOT, resource_id: 'mcpr_1', ...more })

interface CallRow extends Partial<LedgerEntry> {
  readonly authority?: JsonObject
  readonly more?: JsonObject
}

/** A decision on an LLM call, allowed if nothing else is said. */
export function decided(id: number, { authority = {}, more = {}, ...values }: CallRow = {}): LedgerEntry {
  const named = { demanded: ['llm.chat'], revision: 1, mode: MODE, ...authority }
  const detail = { method: 'POST', path: '/v1/chat/completions', authority: named, ...more }
  return entry({ at: AT, request_id: `req_${id}`, cert_thumbprint: THUMBPRINT, detail, ...values })
}

/** A decision on a call of the tool `files.read`. */
export function decidedTool(id: number, { authority = {}, more = {}, ...values }: CallRow = {}): LedgerEntry {
  const named = {
    demanded: ['files.use'],
    resource: { id: 'mcpr_1', revision: 1 },
    binding: 'mcpb_1',
    pin: 'd1',
    ...authority,
  }
  const call = { action: 'mcp_tools_call', tool: 'files.read', model: null }
  return decided(id, { ...call, authority: named, more: { path: '/v1/mcp', ...more }, ...values })
}

/** The outcome of a call. */
export const ended = (decision: LedgerEntry): LedgerEntry => ({
  ...decision,
  status: 'success',
  detail: { http_status: 200 },
})
