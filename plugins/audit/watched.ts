import { missingCapability } from '../../db/ledger/authority/rule.ts'
import type { CandidateSet } from '../../db/principals/pins.ts'
import type { JsonObject } from '../../db/support/json.ts'
import type { AccessToken, CapabilityDemand, CheckVerdict } from '../facts.ts'

interface WatchedCall {
  readonly candidate?: CandidateSet | null
  readonly shadows?: readonly CheckVerdict[]
  readonly token?: AccessToken | null
  readonly demand?: CapabilityDemand
}

interface RefusalPath {
  readonly reason: string
  readonly passed: readonly string[]
}

/** The verdict of a call's candidate set at the gate (docs/rehearsal.md#candidates). */
export interface CandidateVerdict extends JsonObject {
  /** Names the set: since when it and the real one have not changed. RFC 3339. */
  readonly since: string
  readonly verdict: 'pass' | 'refuse'
}

/** Judges a call by the candidate set of its principal. Null: no set, or it never came to the gate. */
export function candidateVerdict(
  { candidate, token, demand }: WatchedCall,
  why: RefusalPath | null,
): CandidateVerdict | null {
  if (!candidate || !demand || (why && !hasComeToGate(why))) return null
  const { since, capabilities } = candidate
  const missing = missingCapability(demand.demanded, capabilities, token?.scope ?? null)
  if (missing === null) return { since, verdict: 'pass' }
  return { since, verdict: 'refuse', required_capability: missing }
}

const hasComeToGate = ({ passed, reason }: RefusalPath): boolean =>
  reason === 'capability_missing' || passed.includes('capability')

/** Called with the verdicts of those that only watch a call, once it is recorded: for metrics. */
export interface ShadowMetrics {
  readonly shadow: (check: string, verdict: CheckVerdict) => void
  readonly candidate: (result: 'same' | 'would_refuse' | 'would_allow') => void
}

export function shadowReporter(
  { shadow, candidate }: ShadowMetrics,
  checks: readonly { readonly name: string; readonly shadow: boolean }[],
) {
  const names = checks.filter((check) => check.shadow).map(({ name }) => name)
  return (facts: WatchedCall, why: RefusalPath | null): void => {
    for (const [index, verdict] of (facts.shadows ?? []).entries()) shadow(names[index] ?? '', verdict)
    const watched = candidateVerdict(facts, why)
    if (watched) candidate(resultOf(watched, why))
  }
}

function resultOf({ verdict }: CandidateVerdict, why: RefusalPath | null) {
  if (why === null) return verdict === 'pass' ? 'same' : 'would_refuse'
  return verdict === 'pass' && why.reason === 'capability_missing' ? 'would_allow' : 'same'
}
