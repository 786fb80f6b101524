import { isObject, type UnknownRecord } from '../../support/json.ts'
import {
  isCallAction,
  isDecisionRow,
  NotRecomputable,
  type RecordedDecision,
  recordedDecisionOf,
} from '../authority/decision.ts'
import { recomputeDecision } from '../authority/judge.ts'
import type { LedgerState } from '../authority/ledger-state.ts'
import { LedgerReplay } from '../authority/replay.ts'
import { type LeafVersion, leafMemberText, type StoredRow } from '../record/leaf.ts'
import type { HypotheticalChanges } from './changes.ts'
import { mayChangeAuthority } from './changing-rows.ts'
import { type CallKind, CallKindCache, endOfValue } from './known-calls.ts'
import { countedSince } from './limit-changes.ts'
import type { LimitEffect } from './limit-tally.ts'
import { LimitWalk } from './limit-walk.ts'
import { CallGrouping, type CallPile } from './piles.ts'
import { type CallVerdict, recordedVerdict, verdictWith } from './verdict.ts'
import type { LimitedKind, LimitFate } from './walked-call.ts'

export interface WalkScope extends DecisionWindow {
  /** The principals whose decisions are wanted, by their names in the ledger. Null: everybody's. */
  readonly principals: readonly string[] | null
  /** True: only their calls and the changes of their sets within the window, without what calls rest on. */
  readonly callsAlone?: boolean
  /** True: outcomes too, also those of the window's calls that came after it. */
  readonly outcomes?: boolean
}

export interface WalkProgress {
  readonly rows: number
  readonly of: number
}

/** Leaves in the order written, and how far the walk has come with them. */
export interface WalkedPart extends WalkProgress {
  readonly leaves: Iterable<string>
}

/** RFC 3339 with milliseconds; since inclusive, until exclusive. */
export interface DecisionWindow {
  readonly since: string
  readonly until: string
}

interface RowPlace {
  readonly stream: string
  readonly seq: number
}

/** Counts are of calls: a summary counts as often as it says. */
export interface RehearsalResult {
  readonly decisions: number
  /** The principals that have made them. */
  readonly principals: number
  /** The first and the last of their rows; null if there is none. */
  readonly first: RowPlace | null
  readonly last: RowPlace | null
  readonly unchanged: number
  readonly newlyRefused: CallPile
  readonly newlyAllowed: CallPile
  /** Calls that the rows do not say enough of, by why; most first. */
  readonly undecidable: readonly { readonly why: string; readonly decisions: number }[]
  /** Calls whose recorded decision does not follow from the rows before it. */
  readonly disagreements: number
  /** The effect of each changed limit, in their order. */
  readonly limits: readonly LimitEffect[]
}

export interface DecisionRehearser {
  /** Takes the next leaf: all changes, from the first one on, and decisions of the window. */
  see(leaf: string): void
  result(): RehearsalResult
}

type RehearsalOutcome = { readonly row: StoredRow; readonly limited?: LimitedKind | undefined } & (
  | { readonly pile: 'unchanged' }
  | { readonly pile: 'refused' | 'allowed'; readonly verdict: NonNullable<CallVerdict> }
  | { readonly pile: 'undecidable'; readonly why: string; readonly disagrees: boolean }
)

/**
 * Judges a window's decisions again with changes laid over their state (docs/rehearsal.md#rule). Takes rows
 * in the order written; outcomes (if no limit changes), and decisions outside the window, may be left out. Memory by principals,
 * resources and kinds of calls, not by rows. `before`: what rows before the first have left; `archived`: the last
 * instant of those.
 */
export function rehearser(
  changes: HypotheticalChanges,
  { since, until }: DecisionWindow,
  before?: LedgerState,
  archived = '',
): DecisionRehearser {
  const replay = new LedgerReplay(before)
  const walk = changes.limits && new LimitWalk(changes.limits)
  // Meters may be filled by calls before the window.
  const from = changes.limits ? countedSince(changes.limits, since) : since
  const [refused, allowed] = [new CallGrouping('refused'), new CallGrouping('allowed')]
  const undecidable = new Map<string, number>()
  if (archived >= from) undecidable.set(`calls up to ${archived}, which are archived and not counted here`, 0)
  const principals = new Set<string>()
  const known = new CallKindCache<RehearsalOutcome>()
  let [decisions, unchanged, disagreements] = [0, 0, 0]
  let [first, last]: [string | null, string | null] = [null, null]

  function decide(leaf: string, fate: RehearsalOutcome, count: number, at: string): void {
    if (at < since) return
    decisions += count
    first ??= leaf
    last = leaf
    const { row } = fate
    if (row.principal_id !== null) principals.add(row.principal_id)
    if (fate.pile === 'unchanged') unchanged += count
    else if (fate.pile === 'undecidable') {
      leaveOpen(fate.why, count)
      if (fate.disagrees) disagreements += count
    } else {
      const pile = fate.pile === 'refused' ? refused : allowed
      pile.add(row, fate.verdict, { count, at, id: leafMemberText(leaf, 'request_id') })
    }
  }

  function leaveOpen(why: string, count: number): void {
    undecidable.set(why, (undecidable.get(why) ?? 0) + count)
  }

  /** Hands a call on which nothing else changes to the limits. `detail`: of a refused one. */
  function meter(
    leaf: string,
    { row, limited }: RehearsalOutcome,
    at: string,
    decision?: RefusedByLimit,
  ): void {
    if (!walk || !limited || limited.limits.length === 0) return
    const isCounted = at >= since
    const count = decision?.summarised ?? 1
    const [principal, id] = [row.principal_id ?? '', leafMemberText(leaf, 'request_id')]
    const tell = (fate: LimitFate): void => {
      if (!isCounted) return
      unchanged -= count
      if (fate === 'refused') refused.add(row, BY_LIMIT, { count, at, id })
      else if (fate === 'allowed') allowed.add(row, BY_LIMIT, { count, at, id })
      else leaveOpen(fate.undecidable, count)
    }
    const call = { principal, at, requestId: id, isCounted, tell }
    if (decision) walk.refused(limited, decision.limit, call, decision.summarised)
    else walk.began(limited, { limits: arrayIn(leaf, LIMITS), routed: arrayIn(leaf, ROUTED) }, call)
  }

  const limitedKind = (row: StoredRow): LimitedKind | undefined => {
    const held = replay.principals.get(row.principal_id ?? '')?.states.at(-1)?.capabilities
    return walk?.kindOf(row, held ?? null)
  }

  function fateOf(decision: RecordedDecision, version: LeafVersion): RehearsalOutcome {
    const { row } = decision
    if (version === 1) return { row, pile: 'undecidable', why: 'rows of version 1', disagrees: false }
    const judgement = recomputeDecision(decision, replay)
    if (judgement && 'problem' in judgement)
      return { row, pile: 'undecidable', why: 'decisions that do not follow from the rows', disagrees: true }
    try {
      const [recorded, verdict] = [recordedVerdict(decision), verdictWith(decision, replay, changes)]
      if (verdict && !recorded) return { row, pile: 'refused', verdict }
      if (recorded && !verdict) return { row, pile: 'allowed', verdict: recorded }
      return { row, pile: 'unchanged', limited: limitedKind(row) }
    } catch (error) {
      if (!(error instanceof NotRecomputable)) throw error
      return { row, pile: 'undecidable', why: error.message, disagrees: false }
    }
  }

  /** A grace that ends between two calls makes them two kinds of calls. */
  const hasGrace = (subject: string | null): boolean => {
    const state = replay.principals.get(subject ?? '')?.states.at(-1)
    return state === undefined || [...state.thumbprints, ...state.dpopJkts].some(([, end]) => end !== null)
  }

  function seeWhole(leaf: string, kind: CallKind<RehearsalOutcome> | null): void {
    const { row, detail, version } = rowOf(leaf)
    const { action, status, recorded_at: at } = row
    if (!isCallAction(action)) {
      // A change that was refused has changed nothing.
      if (status === 'denied' || !mayChangeAuthority(action)) return
      replay.apply(row, version, detail)
      // A limit is no authority: calls of a kind stay as they were judged.
      if (action.startsWith('limit.')) walk?.changed(detail)
      else known.forget(version === 2 ? principalOf(action, detail) : null)
    } else if (isDecisionRow(row) && at >= from && at < until) {
      const decision = recordedDecisionOf(row, detail)
      const fate = fateOf(decision, version)
      decide(leaf, fate, decision.summarised ?? 1, at)
      const { allowed: isAllowed, reason, summarised } = decision
      if (isAllowed) meter(leaf, fate, at)
      else if (reason === 'limit_reached') meter(leaf, fate, at, { limit: detail.limit, summarised })
      if (kind !== null && !hasGrace(row.principal_id)) known.judged(row.principal_id ?? '', kind, fate)
    }
  }

  /** Reads an outcome, if its call is one that a limit waits for. */
  function seeOutcome(leaf: string, limits: LimitWalk): void {
    if (!limits.awaits(leafMemberText(leaf, 'request_id'))) return
    const { row, detail } = rowOf(leaf)
    limits.ended(row, detail)
  }

  return {
    see: (leaf) => {
      if (walk && isOutcome(leaf)) return seeOutcome(leaf, walk)
      const kind = known.of(leaf)
      if (!kind?.fate) return seeWhole(leaf, kind)
      const at = leafMemberText(leaf, 'recorded_at') ?? ''
      if (at < from || at >= until) return
      decide(leaf, kind.fate, 1, at)
      meter(leaf, kind.fate, at)
    },
    result: () => ({
      // First: it judges the calls that still wait.
      limits: walk?.result() ?? [],
      ...{ decisions, principals: principals.size, first: placeOf(first), last: placeOf(last), unchanged },
      newlyRefused: refused.pile(),
      newlyAllowed: allowed.pile(),
      undecidable: [...undecidable]
        .map(([why, count]) => ({ why, decisions: count }))
        .toSorted((a, b) => b.decisions - a.decisions),
      disagreements,
    }),
  }
}

/** True of the outcome of a call. Its action is the first member of a leaf. */
const isOutcome = (leaf: string): boolean =>
  CALL.test(leaf) && !DECIDED.has(leafMemberText(leaf, 'status') ?? '')

const CALL = /^\{"action":"(?:egress_llm_chat|mcp_[^."]*)"/
const DECIDED: ReadonlySet<string> = new Set(['allowed', 'denied', 'invalid'])

const BY_LIMIT = { reason: 'limit_reached', capability: null }

/** A decision that a limit refused. */
interface RefusedByLimit {
  /** The member of its row. */
  readonly limit: unknown
  readonly summarised: number | null
}

/** Reads a member of the detail of an allowed call: an array without others in it. Reads nothing else. */
function arrayIn(leaf: string, member: string): unknown {
  // No text of a leaf has a bare quotation mark, so this is no part of one. A model's name may hold a bracket.
  const begin = leaf.indexOf(member, leaf.indexOf('"detail":{'))
  if (begin < 0) return undefined
  const from = begin + member.length - 1
  return JSON.parse(leaf.slice(from, endOfValue(leaf, from)))
}

const LIMITS = '"limits":['
const ROUTED = '"routed":['

/** The one principal whose calls a change of version 2 can touch; null if it may be any. */
const principalOf = (action: string, { subject }: UnknownRecord): string | null =>
  OF_PRINCIPALS.test(action) && typeof subject === 'string' ? subject : null

const OF_PRINCIPALS = /^(?:agent|user|workload|operator)\./

function placeOf(leaf: string | null): RowPlace | null {
  if (leaf === null) return null
  const { stream, seq } = rowOf(leaf).row
  return { stream, seq }
}

interface ParsedLeaf {
  /** Without its hash, leaf and the text of its detail. */
  readonly row: StoredRow
  readonly detail: UnknownRecord
  readonly version: LeafVersion
}

/** Reads a leaf. Written by the ledger: an object, of every column but `row_hash` (docs/ledger.md#row). */
function rowOf(leaf: string): ParsedLeaf {
  const { detail, v, ...row } = JSON.parse(leaf) as UnknownRecord
  return {
    row: { ...row, detail: '', row_hash: '', leaf: '' } as unknown as StoredRow,
    detail: isObject(detail) ? detail : {},
    version: v === 2 ? 2 : 1,
  }
}
