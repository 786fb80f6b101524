import { isRatePeriod } from '../../limits/limit.ts'
import { compileScope } from '../../limits/scope.ts'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import type { StoredRow } from '../record/leaf.ts'
import type { ChangedLimit, LimitChanges } from './limit-changes.ts'
import { type LimitedRow, limitFits } from './limit-fit.ts'
import { type CountedCall, type LimitEffect, LimitTally } from './limit-tally.ts'
import {
  type EndedUsage,
  holdsIn,
  NO_USAGE,
  type RecordedHold,
  textsIn,
  usageOfOutcome,
} from './recorded-usage.ts'
import type { LimitedKind, LimitFate, LimitRun, WalkedCall, WalkedClaim, WalkedEvent } from './walked-call.ts'
import { WalkedMeters } from './walked-meters.ts'

/** The decisions and outcomes that may wait for the outcome of one call before them. */
const MAX_WAITING_EVENTS = 50_000
/** The calls that may be under way at once. */
const MAX_CALLS_UNDER_WAY = 100_000
/** Events that are done are let go in parts. */
const DONE_EVENTS = 1_024

const NO_ROUTE = 'calls of which no row says to which provider they went'
const NO_COST = 'calls of which no row says what they cost'
const NO_TOKENS = 'calls of which no row says their tokens'
const SUMMARY = 'summaries of calls that a limit refused'

/**
 * Walks recorded calls through changed limits (docs/rehearsal.md#limits): in the order of their rows, each with what
 * it held, or else with what it was charged. A call that would have been refused uses nothing afterwards. Takes
 * decisions and outcomes in the order written. Memory by principals and calls under way.
 */
export class LimitWalk {
  readonly #runs: readonly LimitRun[]
  readonly #changes: LimitChanges
  readonly #measures = new Map<string, string>()
  readonly #underWay = new Map<string, WalkedCall>()
  #queue: WalkedEvent[] = []
  #done = 0

  constructor(changes: LimitChanges) {
    this.#changes = changes
    this.#runs = changes.limits.map((change) => ({
      change,
      scope: compileScope(change.terms.for),
      meters: new WalkedMeters(change.terms),
      tally: new LimitTally(),
    }))
  }

  /** Finds the limits that calls of one kind may come under. `capabilities`: held then; null: no row says it. */
  kindOf(row: LimitedRow, capabilities: readonly string[] | null): LimitedKind {
    const limits = this.#runs.flatMap((run) => {
      const open = limitFits(run, row, { capabilities, names: this.#changes.names })
      return open === false ? [] : [{ run, open: open === true ? null : open }]
    })
    return { row, limits }
  }

  /** Notes what rows say of the limits there were: a call's row names them by their ids. */
  changed({ limit }: UnknownRecord): void {
    if (isObject(limit) && typeof limit.id === 'string' && typeof limit.measure === 'string')
      this.#measures.set(limit.id, `${limit.measure} ${String(limit.strict)}`)
  }

  /** Takes the decision of a call that was allowed. `limits`, `routed`: the members of its row. */
  began(
    kind: LimitedKind,
    { limits, routed }: UnknownRecord,
    call: CountedCall & { readonly tell: (fate: LimitFate) => void },
  ): void {
    const { requestId } = call
    if (kind.limits.every(({ run }) => run.change.isRemoved)) return
    const walked = this.#walked(kind, {
      ...call,
      holds: holdsIn(limits),
      routed: textsIn(routed),
      refusedBy: null,
      usage: null,
    })
    if (requestId !== null) this.#underWay.set(requestId, walked)
    this.#push({ call: walked, isEnd: false })
    const [oldest] = this.#underWay
    if (this.#underWay.size > MAX_CALLS_UNDER_WAY && oldest) this.#endOf(oldest[1], NO_USAGE)
  }

  /** Takes the decision of a call that a limit refused: `limit`, the member of its row. */
  refused(
    kind: LimitedKind,
    limit: unknown,
    call: CountedCall & { readonly tell: (fate: LimitFate) => void },
    summarised: number | null,
  ): void {
    if (summarised !== null) this.#summary(kind, call, summarised)
    const [hold] = holdsIn([limit])
    if (summarised !== null || !hold || !kind.limits.some(({ run }) => run.change.id === hold.id)) return
    const walked = this.#walked(kind, {
      ...call,
      holds: [hold],
      routed: null,
      refusedBy: hold.id,
      usage: NO_USAGE,
    })
    this.#push({ call: walked, isEnd: false })
    this.#push({ call: walked, isEnd: true })
  }

  #summary(kind: LimitedKind, call: CountedCall & Pick<WalkedCall, 'tell'>, count: number): void {
    const known = kind.limits.filter(({ run }) => run.change.id !== null)
    if (known.length === 0) return
    for (const { run } of known) run.tally.undecided(call, count)
    call.tell({ undecidable: SUMMARY })
  }

  #walked(
    kind: LimitedKind,
    call: CountedCall & Pick<WalkedCall, 'tell' | 'holds' | 'routed' | 'refusedBy' | 'usage'>,
  ): WalkedCall {
    return { ...call, kind, atMs: Date.parse(call.at), claims: [] }
  }

  /** Tells whether a call is under way, by the id of its request. */
  awaits(requestId: string | null): boolean {
    return requestId !== null && this.#underWay.has(requestId)
  }

  /** Takes an outcome. */
  ended(
    row: Pick<StoredRow, 'request_id' | 'recorded_at' | 'status' | 'provider'>,
    detail: UnknownRecord,
  ): void {
    const call = this.#underWay.get(row.request_id ?? '')
    if (call) this.#endOf(call, usageOfOutcome(row, detail))
  }

  #endOf(call: WalkedCall, usage: EndedUsage): void {
    this.#underWay.delete(call.requestId ?? '')
    call.usage = usage
    this.#push({ call, isEnd: true })
  }

  /** Judges what still waits, and returns what each limit has done. */
  result(): readonly LimitEffect[] {
    this.#work(0)
    return this.#runs.map(({ change, tally }) => tally.effect(change.name))
  }

  #push(event: WalkedEvent): void {
    this.#queue.push(event)
    this.#work(MAX_WAITING_EVENTS)
  }

  /** Works on events in order, up to a call whose outcome is needed; `most`: the events that may wait for it. */
  #work(most: number): void {
    for (;;) {
      const event = this.#queue[this.#done]
      if (!event) break
      const { call, isEnd } = event
      const waits = !isEnd && call.usage === null && this.#needsOutcome(call)
      if (waits && this.#queue.length - this.#done <= most) break
      this.#done += 1
      if (isEnd) this.#settle(call)
      else this.#judge(call)
    }
    if (this.#done < DONE_EVENTS) return
    this.#queue = this.#queue.slice(this.#done)
    this.#done = 0
  }

  #needsOutcome(call: WalkedCall): boolean {
    return call.kind.limits.some(({ run: { change } }) => {
      if (change.isRemoved || change.terms.measure === 'concurrent') return false
      const own = call.holds.some(({ id }) => id === change.id)
      if (change.terms.for.models && !own && call.routed === null) return true
      return change.terms.measure !== 'calls' && this.#holdFor(call, change) === undefined
    })
  }

  /** The hold that a row states in the measure of a limit: its own, or that of one that counts likewise. */
  #holdFor(
    { holds }: WalkedCall,
    { id, terms: { measure, strict } }: ChangedLimit,
  ): RecordedHold | undefined {
    const own = holds.find((hold) => hold.id === id)
    return own ?? holds.find((hold) => this.#measures.get(hold.id) === `${measure} ${String(strict)}`)
  }

  #judge(call: WalkedCall): void {
    const claims: WalkedClaim[] = []
    const open = new Set<string>()
    for (const { run, open: why } of call.kind.limits) {
      const took = this.#tookOf(call, run, why)
      if (took === null) continue
      if (typeof took === 'string') {
        open.add(took)
        run.tally.undecided(call)
      } else {
        run.tally.applied(call)
        claims.push({ run, reservation: run.meters.reservation(call.principal, took, call.atMs) })
      }
    }
    const full = claims.find(({ run, reservation }) => !run.meters.hasRoom(reservation))
    if (full) {
      full.run.tally.refused(call)
      if (call.refusedBy === null) call.tell('refused')
      return
    }
    for (const claim of claims) {
      const { run, reservation } = claim
      noteUse(call, claim, reservation.took, run.meters.reserve(reservation))
    }
    call.claims = claims
    if (open.size > 0) call.tell({ undecidable: [...open].join('; ') })
    else if (call.refusedBy !== null) this.#allowed(call)
  }

  #allowed(call: WalkedCall): void {
    for (const { run } of call.kind.limits) if (run.change.id === call.refusedBy) run.tally.allowedNow(call)
    call.tell('allowed')
  }

  /** Returns what a call takes of a limit, or why that is not known; null: the limit is not for it. */
  #tookOf(call: WalkedCall, { change, scope }: LimitRun, why: string | null): number | string | null {
    if (change.isRemoved) return null
    const own = call.holds.find(({ id }) => id === change.id)
    if (!own && why !== null) return why
    if (!own && change.terms.for.models) {
      const models = call.routed ?? this.#modelsOf(call)
      if (call.routed === null && models.length === 0) return NO_ROUTE
      if (!scope.fitsCall({ models, tool: null })) return null
    }
    const { measure } = change.terms
    if (measure === 'calls' || measure === 'concurrent') return 1
    const took = this.#holdFor(call, change)?.took ?? call.usage?.[measure]
    return took ?? (measure === 'cost' ? NO_COST : NO_TOKENS)
  }

  /** Returns what a call that has ended is charged; what nobody has stated is what it held. */
  #chargedOf(call: WalkedCall, change: ChangedLimit, took: number): number {
    const { measure } = change.terms
    if (measure === 'calls') return 1
    if (measure === 'concurrent') return 0
    const hold = this.#holdFor(call, change)
    return (hold && call.usage?.charged.get(hold.id)) ?? call.usage?.[measure] ?? took
  }

  /** `provider/model` of each provider that was asked, by the names of now. */
  #modelsOf({ usage, kind: { row } }: WalkedCall): readonly string[] {
    return (usage?.providers ?? []).map((provider) => {
      const asked = row.model?.startsWith(`${provider}/`) ? row.model : `${provider}/${row.model ?? ''}`
      const model = this.#changes.aliases.get(asked)
      return model === undefined ? asked : `${provider}/${model}`
    })
  }

  #settle(call: WalkedCall): void {
    const at = Math.max(call.usage?.at ?? 0, call.atMs)
    for (const claim of call.claims) {
      const { run, reservation } = claim
      const charged = this.#chargedOf(call, run.change, reservation.took)
      noteUse(call, claim, charged - reservation.took, run.meters.settle(reservation, charged, at))
    }
    call.claims = []
  }
}

const isWindow = ({ change: { terms } }: LimitRun): boolean =>
  terms.per !== undefined && !isRatePeriod(terms.per)

/** Notes that a call uses more of a limit, or less, and how much of the meter is used then. */
function noteUse(call: CountedCall, { run, reservation }: WalkedClaim, more: number, used: number): void {
  const { span, who, most } = reservation
  run.tally.used(call.principal, span, more, isWindow(run) ? undefined : used)
  run.tally.stands(call, { who, span, used, amount: most })
}
