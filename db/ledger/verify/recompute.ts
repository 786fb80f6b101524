import { isObject, type UnknownRecord } from '../../support/json.ts'
import { mayUseApproval } from '../approvals/approval-rule.ts'
import type { FindRates } from '../authority/costs.ts'
import { isCallAction, isDecisionRow, recordedDecisionOf } from '../authority/decision.ts'
import { type RecomputationFault, recomputeDecision } from '../authority/judge.ts'
import {
  type DigestedState,
  isLedgerState,
  type LedgerState,
  STATE_ACTION,
  stateText,
} from '../authority/ledger-state.ts'
import { decisionPairing } from '../authority/pairs.ts'
import { PrincipalSets } from '../authority/principal-sets.ts'
import { LedgerReplay } from '../authority/replay.ts'
import { costFault } from '../authority/stated-prices.ts'
import { MARKS } from '../canonical/bytes.ts'
import { LeafRow, rowLeafVersion } from '../canonical/leaf-row.ts'
import { hashOf, type LeafVersion, type StoredRow } from '../record/leaf.ts'
import { OUTCOME_STATUSES } from '../record/outcomes.ts'
import { AgreedDecisions } from './agreed.ts'
import { StreamHeads } from './heads.ts'
import { addLimitFault, meterDecision } from './limited.ts'
import type { BadRow } from './verify.ts'

const NAMED = 20

/** Counts are of calls: a summary counts as often as it says. */
export interface RecomputationReport {
  readonly recomputed: number
  /**
   * Decisions that do not follow from the rows before them, costs that do not follow from their rates, and rows of
   * changes that contradict others.
   */
  readonly disagree: number
  /** Decisions for which the rows do not say enough, by reason. Of those `in one point` the others were recomputed. */
  readonly not_recomputable: Readonly<Record<string, number>>
  /** A later start of the service should have closed them. */
  readonly allowed_without_outcome: number
  readonly outcomes_without_decision: number
  /** Allowed decisions whose outcome may still come. No fault. */
  readonly open: number
  /** The rows of states that say what the rows before them make. */
  readonly states: number
  /** The first problems, in the order of the rows. */
  readonly problems: readonly BadRow[]
}

export interface DecisionRecomputer {
  /** Takes the next whole row. */
  add(row: StoredRow): void
  result(): RecomputationReport
  /** Returns what the rows so far have left. */
  state(): LedgerState
  /** Returns whether a row has said the state before a leaf. */
  hasProven(leaf: number): boolean
  readonly replay: LedgerReplay
  /** The last rows of those so far. */
  readonly heads: StreamHeads
}

interface RecomputationStart {
  /** The state before the first row, if that is not row 0 of the tree. */
  readonly before?: DigestedState | undefined
  /** The leaves of which rows say the state (docs/ledger.md#state). Others are not compared. */
  readonly due?: ReadonlySet<number>
  /** False: decisions are not judged. Default true. */
  readonly judges?: boolean
}

export const isSound = (found: RecomputationReport): boolean =>
  found.disagree + found.allowed_without_outcome + found.outcomes_without_decision === 0

/**
 * Computes every decision again (docs/ledger.md#recomputing). Takes verified rows in the order written: each
 * stream by seq, a change before the decisions of others that rest on it (docs/ledger.md#places). Memory by
 * principals, resources and open calls, not by rows.
 */
export function recomputer({
  before,
  due = NONE,
  judges = true,
}: RecomputationStart = {}): DecisionRecomputer {
  const replay = new LedgerReplay(before?.state)
  const agreed = new AgreedDecisions(replay)
  const findPrice: FindRates = (name) => replay.prices.get(name)
  const calls = decisionPairing(before?.state)
  const sets = new PrincipalSets(before?.state.principal_sets)
  const heads = new StreamHeads(before?.state.streams)
  const digests = new Map(before ? [[before.state.leaf, before.sha256]] : [])
  let leaf = before?.state.leaf ?? 0
  const problems: BadRow[] = []
  const skipped = new Map<string, number>()
  const proven = new Set<number>()
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
    const words = agreed.wordsOf(row)
    if (words !== null && agreed.has(words)) {
      recomputed += 1
      return
    }
    const decision = recordedDecisionOf(row, membersOf(row))
    const judgement = version === 1 ? OLD : recomputeDecision(decision, replay)
    const limits = version === 1 ? null : meterDecision(decision, replay)
    const fault = addLimitFault(judgement, limits, decision)
    if (words !== null && fault === null) agreed.add(words, row)
    tally(row, decision.summarised ?? 1, fault)
  }

  function meterUnjudged(row: StoredRow): void {
    if (row.status !== 'allowed' || (replay.metered.isEmpty && !mayHaveLimits(row))) return
    meterDecision(recordedDecisionOf(row, membersOf(row)), replay)
  }

  function settle(row: StoredRow): void {
    const { metered } = replay
    const isHeld = !metered.isEmpty && metered.replay.holds.has(row.request_id ?? '')
    const fault = isHeld || mayHaveLimits(row) ? metered.ended(row, membersOf(row)) : null
    if (!judges || fault === null) return
    if ('undecidable' in fault) {
      skipped.set(fault.undecidable, (skipped.get(fault.undecidable) ?? 0) + 1)
      return
    }
    disagree += 1
    blame(row, fault.problem)
  }

  function price(row: StoredRow): void {
    const problem = mayHaveCost(row) ? costFault(membersOf(row), findPrice) : null
    if (problem === null) return
    disagree += 1
    blame(row, problem)
  }

  function change(row: StoredRow, version: LeafVersion): void {
    agreed.forget()
    sets.add(row)
    const members = membersOf(row)
    const problem = row.action === STATE_ACTION ? stateFault(members) : replay.apply(row, version, members)
    if (problem === null) return
    disagree += 1
    blame(row, problem)
  }

  function stateFault({ leaf: at, sha256: said }: UnknownRecord): string | null {
    if (!Number.isSafeInteger(at) || Number(at) > leaf || typeof said !== 'string')
      return 'does not say the state of which rows it is'
    const digest = digests.get(Number(at))
    if (digest === undefined) skipped.set(FAR_STATE, (skipped.get(FAR_STATE) ?? 0) + 1)
    else if (digest === said) proven.add(Number(at))
    else return `says another state of the rows before leaf ${Number(at)} than these make`
    return null
  }

  const state = (): LedgerState => ({
    ...replay.state(),
    ...calls.state(),
    v: 1,
    leaf,
    streams: heads.streams(),
    principal_sets: sets.list(),
  })

  function pair(row: StoredRow, version: LeafVersion): void {
    const { problem, left: behind } = calls.add(row, version)
    if (problem !== null) {
      orphans += 1
      blame(row, problem)
    }
    if (row.action === 'service.started') replay.metered.keepOpen(calls.isOpen)
    left += behind.length
    for (const seq of behind)
      blame({ stream: row.stream, seq }, `is allowed, but has no outcome before ${row.seq}, a start`)
  }

  function see(row: StoredRow): void {
    const version = rowLeafVersion(row) ?? 1
    if (due.has(leaf) && !digests.has(leaf)) digests.set(leaf, hashOf(stateText(state())))
    leaf += 1
    heads.advance(row)
    pair(row, version)
    if (isDecisionRow(row)) {
      if (judges) decide(row, version)
      else if (version === 2) meterUnjudged(row)
      if (mayUseApproval(row)) replay.approvals.use(membersOf(row))
    } else if (isCallAction(row.action)) {
      if (version !== 2 || !OUTCOME_STATUSES.has(row.status)) return
      if (judges) price(row)
      settle(row)
    } else if (!isRefusedChange(row)) change(row, version)
  }

  return {
    add: see,
    state,
    hasProven: (at) => proven.has(at),
    replay,
    heads,
    result: () => ({
      recomputed,
      disagree,
      not_recomputable: Object.fromEntries([...skipped].toSorted(([, a], [, b]) => b - a)),
      allowed_without_outcome: left,
      outcomes_without_decision: orphans,
      open: calls.open,
      states: proven.size,
      problems,
    }),
  }
}

/** Spares parsing the detail of a row that says no cost. */
const mayHaveCost = (row: StoredRow): boolean =>
  row instanceof LeafRow ? (row.marks & MARKS.cost) !== 0 : row.detail.includes('"cost":')
const mayHaveLimits = (row: StoredRow): boolean =>
  row instanceof LeafRow ? (row.marks & MARKS.limits) !== 0 : row.detail.includes('"limits":')

/** A refused change has the change's action, and makes no state. One that says a state is a change. */
const isRefusedChange = (row: StoredRow): boolean => {
  if (row.status !== 'denied') return false
  const { reason, revision } = membersOf(row)
  return typeof reason === 'string' && revision === undefined
}

const NONE: ReadonlySet<number> = new Set()

const FAR_STATE = 'a state of rows that were not walked'

const OLD: RecomputationFault = { notRecomputable: 'of version 1' }

/** Finds the leaves of which rows of an export say the state. */
export async function statesSaidIn(chunks: AsyncIterable<Buffer>): Promise<ReadonlySet<number>> {
  const said = new StatesSaid()
  for await (const chunk of chunks) said.see(chunk)
  return said.leaves
}

/** The same, chunk by chunk. */
export class StatesSaid {
  readonly leaves = new Set<number>()
  /** The end of the chunk before: a row may lie in both. */
  #rest: Buffer = Buffer.alloc(0)

  see(chunk: Buffer): void {
    const head = Buffer.concat([this.#rest, chunk.subarray(0, MAX_STATE_ROW)])
    this.#find(head)
    this.#find(chunk)
    this.#rest = Buffer.from((chunk.length < MAX_STATE_ROW ? head : chunk).subarray(-MAX_STATE_ROW))
  }

  #find(block: Buffer): void {
    for (let at = block.indexOf(SAYS_STATE); at >= 0; at = block.indexOf(SAYS_STATE, at + 1)) {
      const detail = block.toString('latin1', at, at + MAX_STATE_ROW)
      const [, leaf] = /"detail":\{"leaf":([0-9]{1,16}),/.exec(detail) ?? []
      if (leaf !== undefined && this.leaves.size < MAX_STATES_SAID) this.leaves.add(Number(leaf))
    }
  }
}

const SAYS_STATE = Buffer.from(`"action":"${STATE_ACTION}"`)
/** The bytes from the action to the leaf: the detail stands behind two short members. */
const MAX_STATE_ROW = SAYS_STATE.length + 400
/** A day each, for three hundred years. */
const MAX_STATES_SAID = 100_000

/** Reads the text of a state. Null: it is none, or written in another form. */
export function readState(text: string): DigestedState | null {
  const state: unknown = JSON.parse(text)
  if (!isLedgerState(state)) return null
  const digested = { state, sha256: hashOf(text) }
  return stateText(recomputer({ before: digested }).state()) === text ? digested : null
}

function membersOf(row: StoredRow): UnknownRecord {
  // Proven by the verifier: the canonical text of an object.
  const members: unknown = row instanceof LeafRow ? row.members : JSON.parse(row.detail)
  return isObject(members) ? members : {}
}
