import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import type { CallRecorder } from '../../../plugins/audit/audit.ts'
import { requiredCapabilityIn } from '../../../plugins/audit/decision.ts'
import { serviceEntry } from '../../../plugins/audit/entries.ts'
import { StaleAuthority } from '../../../plugins/recorder.ts'
import { Refusal } from '../../../plugins/refusal.ts'
import type { AdminContext } from './context.ts'

/** The refuser after the gate, in `refused_by`. */
const REFUSED_BY = 'operation'

/**
 * Records a change that an operation refuses its caller: for a stored operator like the gate's refusals, else
 * as one row. Rejects with a `Refusal`: `overloaded` if the operator's authority has changed since it was
 * judged, and `audit_unavailable`.
 */
export const deniedChanges =
  (
    ledger: Pick<Ledger, 'commit'>,
    recorder: Pick<CallRecorder, 'refused'>,
    clock: () => number,
    configDigest: string,
  ): AdminContext['recordDenied'] =>
  async (facts, action, refusal) => {
    if (facts.principal) {
      // The proof has been claimed: it let the call in.
      const recorded = recorder.refused({ ...facts, proof: null }, refusal, { by: REFUSED_BY, passed: [] })
      await recorded.catch(refuseUnrecorded)
      return
    }
    const { id, type, via } = facts.actor
    const capability = requiredCapabilityIn(refusal)
    const detail = {
      via,
      reason: refusal.reason,
      refused_by: REFUSED_BY,
      ...(capability !== null && { required_capability: capability }),
    }
    const entry = serviceEntry(action, 'denied', detail, clock(), configDigest)
    await ledger
      .commit({ entries: [{ ...entry, request_id: facts.id, principal_id: id, principal_type: type }] })
      .catch(refuseUnrecorded)
  }

/** Somebody has changed the operator's authority meanwhile, or the ledger cannot record. */
function refuseUnrecorded(error: unknown): never {
  const reason = error instanceof StaleAuthority ? 'overloaded' : 'audit_unavailable'
  throw new Refusal(reason, { cause: error, headers: { 'retry-after': '1' } })
}
