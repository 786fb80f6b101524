import type { RecordedDecision } from '../authority/decision.ts'
import type { RecomputationFault } from '../authority/judge.ts'
import type { LedgerReplay } from '../authority/replay.ts'
import type { LimitFault } from '../metered/metered-rows.ts'

/** The reason of a call that a limit had no room for. */
const LIMIT_REACHED = 'limit_reached'

/** Counts a decision of version 2 in the meters of its limits, and says whether it follows from them. */
export function meterDecision(decision: RecordedDecision, replay: LedgerReplay): LimitFault {
  const { row, allowed, detail } = decision
  if (allowed) return replay.metered.decided(row, detail, capabilitiesOf(decision, replay))
  if (!isRefusedByLimit(decision)) return null
  const fault = revisionFault(decision, replay)
  return fault ?? replay.metered.refused(row, detail, capabilitiesOf(decision, replay))
}

/** Such a row may stand after later revisions: nothing asks if its own is still the last. */
function revisionFault({ row, authority }: RecordedDecision, { principals }: LedgerReplay): LimitFault {
  const { principal_id: id } = row
  const last = principals.get(id ?? '')?.states.at(-1)?.revision ?? 0
  const revision = authority?.revision ?? 0
  if (revision > 0 && revision <= last) return null
  return { problem: `rests on revision ${revision} of ${id ?? 'nobody'}, which no row made` }
}

/** A summary names no meter. */
const isRefusedByLimit = ({ allowed, reason, summarised }: RecordedDecision): boolean =>
  !allowed && reason === LIMIT_REACHED && summarised === null

/** Returns what the principal held in the revision that the row names; null: that is not kept. */
function capabilitiesOf(
  { row, authority }: RecordedDecision,
  { principals }: LedgerReplay,
): readonly string[] | null {
  const states = principals.get(row.principal_id ?? '')?.states
  const revision = authority?.revision
  const last = states?.at(-1)
  if (last?.revision === revision) return last?.capabilities ?? null
  return states?.findLast((state) => state.revision === revision)?.capabilities ?? null
}

/** Adds what limits say of a decision to what its authority says. A problem of either is one of the row. */
export function addLimitFault(
  judgement: RecomputationFault,
  limits: LimitFault,
  decision: RecordedDecision,
): RecomputationFault {
  if (judgement && 'problem' in judgement) return judgement
  // A check may refuse for the same reason.
  if (!judgement && !decision.allowed) return null
  if (limits && 'problem' in limits) return limits
  if (isRefusedByLimit(decision)) return limits && { notRecomputable: limits.undecidable }
  if (judgement) return judgement
  return limits && { notRecomputable: `in one point: ${limits.undecidable}`, inOnePoint: true }
}
