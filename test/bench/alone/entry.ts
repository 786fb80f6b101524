import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'

// Counts the rows, for their request ids.
let serial = 0

/** A decision row as an LLM call makes it. */
export function entry(status: 'allowed' | 'denied' = 'allowed'): LedgerEntry {
  serial += 1
  return {
    at: Date.now(),
    request_id: `req_${serial.toString(16).padStart(32, '0')}`,
    principal_id: 'acme::bench',
    principal_type: 'agent',
    action: 'egress_llm_chat',
    status,
    tool: null,
    model: 'json-1',
    provider: null,
    cert_thumbprint: 'ab'.repeat(32),
    dpop_jkt: null,
    detail: {
      method: 'POST',
      path: '/v1/chat/completions',
      body_sha256: 'cd'.repeat(32),
      body_bytes: 489,
      stream: false,
    },
    config_digest: 'ef'.repeat(32),
  }
}
