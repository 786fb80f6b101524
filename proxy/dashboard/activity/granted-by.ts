import type { AuditRow } from '../../../db/ledger/read/read.ts'
import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { parseLedgerPage } from '../../admin/audit/audit.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { perform } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { rowAuthority } from './gates.ts'

/** What the rows of changes say that make the state of a principal (docs/ledger.md#replay). */
const CHANGES = [
  ...['capabilities_set', 'capabilities_patched', 'created', 'enrolled_byoca', 'enrolled_spiffe'],
  ...['certificate_issued', 'cert_rotated', 'dpop_jwk_set', 'reactivated', 'deactivated'],
]
/** The newest rows of each kind that are looked through. */
const ROWS = 200
/** Rows are committed in another order than they are recorded, by less than that. ms. */
const APART_MS = 60_000

/**
 * Finds the row that made the state which a decision names: the set held then. Null where the newest rows before it do not
 * have it, or where it names none.
 */
export async function findGrantingRow(
  { context }: DashboardContext,
  facts: AdministrationFacts,
  decision: AuditRow,
): Promise<AuditRow | null> {
  const { principal_id: subject, principal_type: type, recorded_at: at } = decision
  const { revision } = rowAuthority(decision)
  if (subject === null || type === null || typeof revision !== 'number') return null
  const until = new Date(Date.parse(at) + APART_MS).toISOString()
  for (const change of CHANGES) {
    const query = { action: `${type}.${change}`, until, limit: ROWS }
    const { value } = await perform(OPERATIONS.audit.list, context, { query }, facts)
    const { rows } = await parseLedgerPage(value)
    const found = rows.find(({ detail }) => detail.subject === subject && detail.revision === revision)
    if (found) return found
  }
  return null
}
