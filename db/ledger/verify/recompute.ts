import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isCallAction, isDecisionRow, recordedDecisionOf } from '../authority/decision.ts'
import { type RecomputationFault, recomputeDecision } from '../authority/judge.ts'
import { decisionPairing } from '../authority/pairs.ts'
import { LedgerReplay } from '../authority/replay.ts'
import { LeafRow, rowLeafVersion } from '../canonical/leaf-row.ts'
import type { LeafVersion, StoredRow } from '../record/leaf.ts'
import type { BadRow } from './verify.ts'

const NAMED = 20

/** Counts are of calls: a summary counts as often as it says. */
export interface RecomputationReport {
  readonly recomputed: number
  /** Decisions that do not follow from the rows before them, and rows of changes that contradict others. */
  readonly disagree: number
  /** Decisions for which the rows do not say enough, by reason. Of those `in one point` the others were recomputed. */
  readonly not_recomputable: Readonly<Record<string, number>>
  /** A later start of the service should have closed them. */
  readonly allowed_without_outcome: number
  readonly outcomes_without_decision: number
  /** Allowed decisions whose outcome may still come. No fault. */
  readonly open: number
  /** The first problems, in the order of the rows. */
  readonly problems: readonly BadRow[]
}

export interface DecisionRecomputer {
  /** Takes the next whole row. */
  add(row: StoredRow): void
  result(): RecomputationReport
  readonly replay: LedgerReplay
}

export const isSound = (found: RecomputationReport): boolean =>
  found.disagree + found.allowed_without_outcome + found.outcomes_without_decision === 0

/**
 * Computes every decision again (docs/ledger.md#recomputing). Takes verified rows in the order written: each
 * stream by seq, a change before the decisions of others that rest on it (docs/ledger.md#places). Memory by
 * principals, resources and open calls, not by rows.
 */
export function recomputer(): DecisionRecomputer {
  const replay = new LedgerReplay()
  const calls = decisionPairing()
  const problems: BadRow[] = []
  const skipped = new Map<string, number>()
  let [recomputed, disagree, left, orphans] = [0, 0, 0, 0]

  function blame({ stream, seq }: Pick<BadRow, 'stream' | 'seq'>, problem: string): void {
    if (problems.length < NAMED) problems.push({ stream, seq, problem })
  }

  function tally(row: StoredRow, count: number, judgement: RecomputationFault): void {
    if (judgement && 'notRecomputable' in judgement) {
      const { notRecomputable: why } = judgement
      skipped.set(why, (skipped.get(why) ?? 0) + count)
      if (judgement.inOnePoint) recomputed += count
      return
    }
    recomputed += count
    if (!judgement) return
    disagree += count
    blame(row, judgement.problem)
  }

  function decide(row: StoredRow, version: LeafVersion): void {
    const decision = recordedDecisionOf(row, membersOf(row))
    const judgement = version === 1 ? OLD : recomputeDecision(decision, replay)
    tally(row, decision.summarised ?? 1, judgement)
  }

  function change(row: StoredRow, version: LeafVersion): void {
    const problem = replay.apply(row, version, membersOf(row))
    if (problem === null) return
    disagree += 1
    blame(row, problem)
  }

  function pair(row: StoredRow, version: LeafVersion): void {
    const { problem, left: behind } = calls.add(row, version)
    if (problem !== null) {
      orphans += 1
      blame(row, problem)
    }
    left += behind.length
    for (const seq of behind)
      blame({ stream: row.stream, seq }, `is allowed, but has no outcome before ${row.seq}, a start`)
  }

  function see(row: StoredRow): void {
    const version = rowLeafVersion(row) ?? 1
    pair(row, version)
    if (isDecisionRow(row)) decide(row, version)
    else if (!isCallAction(row.action) && !isRefusedChange(row)) change(row, version)
  }

  return {
    add: see,
    replay,
    result: () => ({
      recomputed,
      disagree,
      not_recomputable: Object.fromEntries([...skipped].toSorted(([, a], [, b]) => b - a)),
      allowed_without_outcome: left,
      outcomes_without_decision: orphans,
      open: calls.open,
      problems,
    }),
  }
}

/** A refused change has the change's action, and makes no state. One that says a state is a change. */
const isRefusedChange = (row: StoredRow): boolean => {
  if (row.status !== 'denied') return false
  const { reason, revision } = membersOf(row)
  return typeof reason === 'string' && revision === undefined
}

const OLD: RecomputationFault = { notRecomputable: 'of version 1' }

function membersOf(row: StoredRow): UnknownRecord {
  // Proven by the verifier: the canonical text of an object.
  const members: unknown = row instanceof LeafRow ? row.fields.detail : JSON.parse(row.detail)
  return isObject(members) ? members : {}
}
