import { isObject, type Members } from '../../support/json.ts'
import { decisionOf, isDecision } from '../authority/decision.ts'
import type { StoredRow } from '../record/leaf.ts'
import { Grouping, type Pile } from './piles.ts'
import { recordedVerdict } from './verdict.ts'

/** What was seen of a candidate set on the calls of its principal. */
export interface Watched {
  /** The calls that it has judged. */
  readonly decisions: number
  readonly wouldRefuse: Pile
  /** Of the calls that the gate has refused: what stands behind it was never asked. */
  readonly wouldAllow: Pile
}

/**
 * Adds up the verdicts of a principal's candidate set, as its rows have them (docs/rehearsal.md#candidates). `since` names
 * the set. Takes leaves of any rows.
 */
export function candidateWatch(principal: string, since: string) {
  const [refused, allowed] = [new Grouping(), new Grouping()]
  let decisions = 0
  return {
    see(leaf: string): void {
      // Written by the ledger: an object, of every column but `row_hash` (docs/ledger.md#row).
      const { detail, ...columns } = JSON.parse(leaf) as Members
      const row = columns as unknown as StoredRow
      if (row.principal_id !== principal || !isDecision(row) || !isObject(detail)) return
      const verdict = verdictIn(detail, since)
      if (!verdict) return
      const decision = decisionOf(row, detail)
      const [recorded, count] = [recordedVerdict(decision), decision.summarised ?? 1]
      decisions += count
      const call = { count, at: row.recorded_at, id: row.request_id }
      if (recorded === null && verdict.capability !== null)
        refused.add(row, { reason: 'capability_missing', capability: verdict.capability }, call)
      else if (recorded?.reason === 'capability_missing' && verdict.capability === null)
        allowed.add(row, recorded, call)
    },
    result: (): Watched => ({ decisions, wouldRefuse: refused.pile(), wouldAllow: allowed.pile() }),
  }
}

/** What the set lacks of what a call demanded; null: nothing. */
function verdictIn({ authority }: Members, since: string): { readonly capability: string | null } | null {
  const said = isObject(authority) ? authority.candidate : undefined
  if (!isObject(said) || said.since !== since) return null
  if (said.verdict === 'pass') return { capability: null }
  return typeof said.required_capability === 'string' ? { capability: said.required_capability } : null
}
