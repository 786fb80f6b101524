import type { Authority } from '../../certs/authority/authority.ts'
import { LedgerError } from '../../db/audit/entry.ts'
import type { Ledger } from '../../db/audit/ledger.ts'
import type { Database } from '../../db/database.ts'
import type { Statement } from '../../db/statement.ts'
import { type AuditNote, noteEntry } from '../../plugins/audit/entries.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal, type RefusalReason } from '../../plugins/refusal.ts'
import type { Actor } from '../../plugins/secrets/admin-secret.ts'
import type { Configuration } from '../configuration.ts'
import type { Inspect } from '../mcp/pinning/inspect.ts'

/** What the admin handlers work with. */
export interface AdminContext {
  readonly database: Database
  readonly ledger: Ledger
  readonly authority: Authority
  readonly organisation: string
  readonly trustDomain: string
  /** The configuration in force. */
  readonly configuration: () => Configuration
  /** Called when CAs were attached or detached: the TLS listener names those it would like to see. */
  readonly clientCasChanged: () => Promise<void>
  readonly mcp: {
    readonly inspect: Inspect
    /** MCP_PROXY_ALLOW_PRIVATE_UPSTREAMS. */
    readonly allowPrivateUpstreams: boolean
  }
}

interface Change extends AuditNote {
  readonly statements: readonly Statement[]
}

/** Makes a change and its one audit row in one transaction, as {@link changeAll} does. */
export function change(
  context: AdminContext,
  facts: Arrival & { readonly actor: Actor },
  { statements, ...note }: Change,
  duplicate: RefusalReason = 'conflict',
): Promise<void> {
  return changeAll(context, facts, { statements, notes: [note] }, duplicate)
}

interface Changes {
  readonly statements: readonly Statement[]
  /** One for each row. */
  readonly notes: readonly AuditNote[]
}

/**
 * Makes a change and its audit rows in one transaction: all or nothing (spec §6, AUDIT.md).
 * Throws `duplicate` where something of that name exists, `precondition_failed` where the object has moved on,
 * `audit_unavailable` where the ledger cannot record.
 */
export async function changeAll(
  { ledger, configuration }: AdminContext,
  { id, at, actor }: Arrival & { readonly actor: Actor },
  { statements, notes }: Changes,
  duplicate: RefusalReason = 'conflict',
): Promise<void> {
  const { digest } = configuration()
  const entries = notes.map((note) => ({
    ...noteEntry({ ...note, detail: { ...note.detail, via: actor.via } }, at, digest),
    request_id: id,
    principal_id: actor.id,
    principal_type: 'operator',
  }))
  try {
    await ledger.commit({ statements, entries })
  } catch (error) {
    throw refusalOf(error, duplicate)
  }
}

function refusalOf(error: unknown, duplicate: RefusalReason): unknown {
  if (!(error instanceof LedgerError)) return error
  if (error.code === 'duplicate') return new Refusal(duplicate, { cause: error })
  if (error.code === 'conflict') return new Refusal('precondition_failed', { cause: error })
  return new Refusal('audit_unavailable', { cause: error, headers: { 'retry-after': '1' } })
}
