import type { LedgerEntry } from '../../db/ledger/record/entry.ts'
import type { JsonObject } from '../../db/support/json.ts'

/** The content of an audit row about a change, before it is known who made it. */
export interface AuditNote {
  readonly action: string
  readonly detail: JsonObject
  /** `<resource>.<tool>`, if it is about one. */
  readonly tool?: string
}

export const noteEntry = (
  { action, detail, tool }: AuditNote,
  at: number,
  configDigest: string,
): LedgerEntry => ({
  ...serviceEntry(action, 'success', detail, at, configDigest),
  tool: tool ?? null,
})

export function serviceEntry(
  action: string,
  status: string,
  detail: LedgerEntry['detail'],
  at: number,
  configDigest: string,
): LedgerEntry {
  return {
    at,
    request_id: null,
    principal_id: null,
    principal_type: null,
    action,
    status,
    tool: null,
    model: null,
    provider: null,
    cert_thumbprint: null,
    dpop_jkt: null,
    detail,
    config_digest: configDigest,
  }
}
