import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isDecisionRow, recordedDecisionOf } from '../authority/decision.ts'
import type { StoredRow } from '../record/leaf.ts'
import { CallGrouping, type CallPile } from './piles.ts'
import { recordedVerdict } from './verdict.ts'

export interface CandidateReport {
  /** The calls that it has judged. */
  readonly decisions: number
  readonly wouldRefuse: CallPile
  /** Calls that the gate refused: nothing after the gate was asked. */
  readonly wouldAllow: CallPile
}

/**
 * Adds up the verdicts of a principal's candidate set (docs/rehearsal.md#candidates). `since` names the set.
 * Takes leaves of any rows.
 */
export function candidateWatch(principal: string, since: string) {
  const [refused, allowed] = [new CallGrouping('refused'), new CallGrouping('allowed')]
  let decisions = 0
  return {
    see(leaf: string): void {
      // Written by the ledger: an object, of every column but `row_hash` (docs/ledger.md#row).
      const { detail, ...columns } = JSON.parse(leaf) as UnknownRecord
      const row = columns as unknown as StoredRow
      if (row.principal_id !== principal || !isDecisionRow(row) || !isObject(detail)) return
      const verdict = verdictIn(detail, since)
      if (!verdict) return
      const decision = recordedDecisionOf(row, detail)
      const [recorded, count] = [recordedVerdict(decision), decision.summarised ?? 1]
      decisions += count
      const call = { count, at: row.recorded_at, id: row.request_id }
      if (recorded === null && verdict.capability !== null)
        refused.add(row, { reason: 'capability_missing', capability: verdict.capability }, call)
      else if (recorded?.reason === 'capability_missing' && verdict.capability === null)
        allowed.add(row, recorded, call)
    },
    result: (): CandidateReport => ({ decisions, wouldRefuse: refused.pile(), wouldAllow: allowed.pile() }),
  }
}

/** Returns the demanded capability that the set lacks; null: none. */
function verdictIn(
  { authority }: UnknownRecord,
  since: string,
): { readonly capability: string | null } | null {
  const said = isObject(authority) ? authority.candidate : undefined
  if (!isObject(said) || said.since !== since) return null
  if (said.verdict === 'pass') return { capability: null }
  return typeof said.required_capability === 'string' ? { capability: said.required_capability } : null
}
