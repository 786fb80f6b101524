import { draftOf } from '../../../db/ledger/record/draft.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import type { JudgingRules } from '../../../plugins/audit/decision.ts'
import { decisionOf, type MadeCall, outcomeOf } from './call.ts'

/** What the record of calls took: a decision and an outcome each. */
export interface CallCost {
  readonly calls: number
  /** Making the decision row, its commitment included, until it is handed to the ledger's thread. µs. */
  readonly decisionUs: number
}

const ORIGIN = { stream: 'main', version: 'bench' }
const CALLS = 20_000
const CALLERS = 64
export const JUDGING: JudgingRules = {
  configDigest: 'ef'.repeat(32),
  mode: { egress_dpop_mode: 'optional', no_downgrade: false },
  checks: [],
}
const CALLER = { id: 'acme::bench', revision: 3, thumbprint: 'ab'.repeat(32) }

/** Writes calls as agents make them to a ledger that is open and idle. */
export async function recordCalls(ledger: Ledger): Promise<CallCost> {
  let calls = 0
  const caller = async (): Promise<void> => {
    while (calls < CALLS) {
      calls += 1
      const call = callOf(calls)
      await ledger.commit({ entries: [decisionOf(call, JUDGING)] })
      await ledger.commit({ entries: [outcomeOf(call, JUDGING)], lazy: true })
    }
  }
  await Promise.all(Array.from({ length: CALLERS }, caller))
  return { calls, decisionUs: decisionUs() }
}

function decisionUs(): number {
  const since = performance.now()
  for (let n = 0; n < CALLS; n += 1) draftOf(decisionOf(callOf(n), JUDGING), ORIGIN)
  return ((performance.now() - since) * 1_000) / CALLS
}

const callOf = (n: number): MadeCall => ({ n, at: Date.now(), caller: CALLER, model: 'gpt-5' })
