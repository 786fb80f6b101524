import { amountAt, type CallLimit, isRatePeriod, RATE_PERIOD_MS } from '../../limits/limit.ts'
import { usedInOutcome } from '../../limits/used.ts'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import {
  type MeterRefill,
  type MeterState,
  meterHasRoom,
  NEW_METER,
  reserveOf,
  settleIn,
  usageOf,
} from '../meters/meter-book.ts'
import type { StoredRow } from '../record/leaf.ts'
import { type HeldMeter, LimitReplay, type LimitsState, lastState, meterOf } from './limit-replay.ts'
import {
  type RecordedRefusalMeter,
  type RecordedReservation,
  type RecordedSettlement,
  refusalMeterIn,
  reservationsIn,
  settlementsIn,
} from './recorded-limits.ts'
import { meterAfter, PastMeters, type ReplayedMeter } from './replayed-meters.ts'
import { type RecordedThings, thingsIn } from './scope-fit.ts'

/** Null: the row follows from those before it. `undecidable`: why they do not say enough. Half a sentence each. */
export type LimitFault = { readonly problem: string } | { readonly undecidable: string } | null

/** An honest log has as many as there are calls at one time. */
const MAX_HOLDS = 100_000

/** The capabilities of a row's principal, as it was judged; null: they are not known. */
type KnownCapabilities = readonly string[] | null

const OF_LONG_AGO = { undecidable: 'limits of a window that was over a day before' }
const UNSAID_SCOPE = { undecidable: 'limits for something that the row does not say' }
const MOVED_ON = { undecidable: 'limits whose meter has gone on since' }
const TOO_MANY = { undecidable: 'limits, after more open calls than are followed' }
const MIS_FORMED = { problem: 'does not say its limits as they are said' }

/**
 * Recomputes limits from rows alone (docs/ledger.md#recomputing-limits): each meter by the rows in their order. Memory
 * by limits, meters of the windows of now, and open calls. Holds the loop for no more than a row's limits.
 */
export class MeteredRows {
  readonly replay: LimitReplay
  readonly #past = new PastMeters()
  /** True: there were more open calls than are followed, and what these hold is not known. */
  #isCut: boolean

  constructor(before?: LimitsState & { readonly open_is_cut?: boolean }) {
    this.replay = new LimitReplay(before)
    this.#isCut = before?.open_is_cut ?? false
  }

  /** True if no row has made a limit: then only a row that names one is looked at. */
  get isEmpty(): boolean {
    return this.replay.limits.size === 0
  }

  /** Takes an allowed decision. */
  decided(row: StoredRow, detail: UnknownRecord, capabilities: KnownCapabilities): LimitFault {
    const named = reservationsIn(detail)
    if (!named) return MIS_FORMED
    if (this.isEmpty && named.length === 0) return null
    const things = thingsIn(row, detail, capabilities)
    const faults = named.map((one) => this.#reserve(row, one, things))
    this.#hold(row, named)
    if (this.#isCut) return TOO_MANY
    return worstOf([...faults, this.#leftOut(named, things), this.#costFault(named, detail.held_microusd)])
  }

  /** Takes an outcome. */
  ended(row: StoredRow, detail: UnknownRecord): LimitFault {
    const id = row.request_id ?? ''
    const held = this.replay.holds.get(id) ?? []
    const named = settlementsIn(detail)
    if (held.length > 0) this.replay.holds.delete(id)
    if (!named) return MIS_FORMED
    const faults = named.map((one) => this.#settle(row, detail, one, held))
    if (this.#isCut) return named.length > 0 ? TOO_MANY : null
    const unsettled = held.find(([limit]) => !named.some((one) => one.id === limit))
    const left = unsettled ? { problem: `does not settle the limit ${unsettled[0]}` } : null
    return worstOf([...faults, left, this.#crashFault(held, detail)])
  }

  /** Judges a decision that was refused because of a limit. */
  refused(row: StoredRow, detail: UnknownRecord, capabilities: KnownCapabilities): LimitFault {
    const said = refusalMeterIn(detail)
    if (!said) return MIS_FORMED
    const known = this.replay.limits.get(said.id)
    if (!known) return { problem: `names the limit ${said.id}, which no row made` }
    const limit = known.states.findLast(({ revision }) => revision === said.revision)
    if (!limit)
      return said.revision > lastState(known).revision
        ? { problem: `rests on revision ${said.revision} of the limit ${said.id}, which no row made` }
        : { undecidable: 'limits of a state that was changed often since' }
    const at = Date.parse(row.recorded_at)
    const { most, refill, span, who } = meterOf(limit, at, row.principal_id)
    const isSame = said.span === span && said.each === limit.each && said.most === most
    if (!isSame || limit.on !== 'refuse' || !isUnit(limit, said.took))
      return { problem: `says the limit ${said.id} otherwise than it is` }
    const fit = known.scope.fit(thingsIn(row, detail, capabilities))
    if (fit === 'no') return { problem: `is refused by the limit ${said.id}, which is not for it` }
    if (known.meters.isForgotten(span)) return OF_LONG_AGO
    if (this.#isCut) return TOO_MANY
    const full = fullFault(known.meters.find(span, who), said, refill)
    return full ?? (fit === 'unknown' ? UNSAID_SCOPE : null)
  }

  /** Forgets what calls hold that no outcome will end: a start has left them behind. */
  keepOpen(isOpen: (request: string) => boolean): void {
    for (const id of this.replay.holds.keys()) if (!isOpen(id)) this.replay.holds.delete(id)
  }

  #reserve(row: StoredRow, said: RecordedReservation, things: RecordedThings): LimitFault {
    const known = this.replay.limits.get(said.id)
    if (!known || known.removed !== null) return { problem: `names the limit ${said.id}, which is not there` }
    const limit = lastState(known)
    const at = Date.parse(row.recorded_at)
    const { most, refill, span, who } = meterOf(limit, at, row.principal_id)
    const fault = statedFault(limit, said, span)
    const meter = known.meters.take(said.span, who, at)
    if (!meter) return OF_LONG_AGO
    const before = meter.state
    meter.open += 1
    this.#past.change(meter, { ...reserveOf(before, { ...said, ...(refill && { refill }) }), n: said.n })
    if (fault) return { problem: fault }
    const fit = known.scope.fit(things)
    if (fit === 'no') return { problem: `names the limit ${said.id}, which is not for it` }
    const used = usedFault(before, said, refill)
    if (used) return { problem: used }
    const room = { took: said.took, most, ...(refill && { refill }) }
    if (limit.on === 'refuse' && !meterHasRoom(before, room))
      return {
        problem: `takes ${said.took} of the limit ${said.id}, of which ${said.used} of ${most} are used`,
      }
    return fit === 'unknown' ? UNSAID_SCOPE : null
  }

  /** Finds a limit that applies and that the row does not name. */
  #leftOut(named: readonly RecordedReservation[], things: RecordedThings): LimitFault {
    let fault: LimitFault = null
    for (const [id, { removed, scope }] of this.replay.limits) {
      if (removed !== null || named.some((one) => one.id === id)) continue
      const fit = scope.fit(things)
      if (fit === 'yes') return { problem: `leaves out the limit ${id}, which is for it` }
      if (fit === 'unknown') fault = UNSAID_SCOPE
    }
    return fault
  }

  #costFault(named: readonly RecordedReservation[], said: unknown): LimitFault {
    const held = this.#heldCost(named.map(({ id, took }) => [id, took]))
    return said === undefined || said === held ? null : { problem: 'says another cost than it holds' }
  }

  #crashFault(held: readonly HeldMeter[], { reason, cost }: UnknownRecord): LimitFault {
    if (reason !== 'crash' || !isObject(cost)) return null
    const due = this.#heldCost(held.map(([id, , , took]) => [id, took]))
    return cost.microusd === due ? null : { problem: 'says another cost than its decision held' }
  }

  /** Returns the most that is held of a limit of cost; null: none is. */
  #heldCost(held: readonly (readonly [id: string, took: number])[]): number | null {
    const costs = held.flatMap(([id, took]) => {
      const known = this.replay.limits.get(id)
      return known && lastState(known).measure === 'cost' ? [took] : []
    })
    return costs.length === 0 ? null : Math.max(...costs)
  }

  #hold(row: StoredRow, named: readonly RecordedReservation[]): void {
    if (named.length === 0) return
    const { holds, limits } = this.replay
    if (holds.size >= MAX_HOLDS) {
      this.#isCut = true
      return
    }
    const at = Date.parse(row.recorded_at)
    const held = named.map(({ id, span, took }): HeldMeter => {
      const known = limits.get(id)
      if (!known) return [id, span, '', took, null]
      const limit = lastState(known)
      const { who, refill } = meterOf(limit, at, row.principal_id)
      return [id, span, who, took, refill ? amountAt(limit, at) : null]
    })
    holds.set(row.request_id ?? '', held)
  }

  #settle(
    row: StoredRow,
    detail: UnknownRecord,
    said: RecordedSettlement,
    held: readonly HeldMeter[],
  ): LimitFault {
    const holding = held.find(([id, span]) => id === said.id && span === said.span)
    if (!holding) return { problem: `settles the limit ${said.id}, of which its decision holds nothing` }
    const [, span, who, took, rate] = holding
    const known = this.replay.limits.get(said.id)
    const meter = known?.meters.find(span, who)
    if (!known || !meter) return OF_LONG_AGO
    const limit = lastState(known)
    const refill = isCrash(detail) ? undefined : refillOf(limit, rate, Date.parse(row.recorded_at))
    const before = meter.state
    meter.open = Math.max(0, meter.open - 1)
    const state = settleIn(before, { span, took, charged: said.charged, ...(refill && { refill }) })
    this.#past.change(meter, { ...state, n: said.n })
    if (said.n !== before.n + 1) return { problem: numberFault(said, before) }
    const due = chargesOf(limit, detail, took)
    if (due === null) return { undecidable: 'charges of outcomes that could not be stored' }
    return due.includes(said.charged)
      ? null
      : { problem: `charges ${said.charged} of the limit ${said.id}, but it makes ${due[0]}` }
  }
}

const isUnit = ({ measure }: CallLimit, took: number): boolean =>
  took === 1 || measure === 'cost' || measure === 'tokens'

function statedFault(limit: CallLimit, said: RecordedReservation, span: string): string | null {
  if (said.revision !== limit.revision)
    return `rests on revision ${said.revision} of the limit ${said.id}, the last is ${limit.revision}`
  const isSame = said.each === limit.each && said.span === span && isUnit(limit, said.took)
  return isSame ? null : `says the limit ${said.id} otherwise than it is`
}

const numberFault = ({ id, n }: { readonly id: string; readonly n: number }, before: MeterState): string =>
  `is change ${n} of a meter of the limit ${id}, behind ${before.n}`

function usedFault(
  before: MeterState,
  said: RecordedReservation,
  refill: MeterRefill | undefined,
): string | null {
  if (said.n !== before.n + 1) return numberFault(said, before)
  const { used } = usageOf(before, refill)
  return used === said.used
    ? null
    : `says that ${said.used} of the limit ${said.id} are used, but it is ${used}`
}

/** Says why a meter was not full when a call was refused by it. */
function fullFault(
  meter: ReplayedMeter | undefined,
  said: RecordedRefusalMeter,
  refill: MeterRefill | undefined,
): LimitFault {
  const { took, most, n } = said
  if (n > (meter?.state.n ?? 0))
    return { problem: `names change ${n} of a meter of the limit ${said.id}, which no row made` }
  const then = meter ? meterAfter(meter, n) : NEW_METER
  if (!then) return MOVED_ON
  const { used } = usageOf(then, refill)
  if (used !== said.used)
    return { problem: `says that ${said.used} of the limit ${said.id} were used, but it was ${used}` }
  return meterHasRoom(then, { took, most, ...(refill && { refill }) })
    ? { problem: `is refused, but the limit ${said.id} had room: ${used} and ${took} of ${most}` }
    : null
}

/** The refilling of a steady meter when a call ends; undefined: it is another meter. */
const refillOf = ({ per }: CallLimit, rate: number | null, at: number): MeterRefill | undefined =>
  rate !== null && isRatePeriod(per) ? { rate, periodMs: RATE_PERIOD_MS[per], at } : undefined

/** Tells the outcome of a call whose process has died: all that it held is used up. */
const isCrash = ({ reason }: UnknownRecord): boolean => reason === 'crash'

/** Returns what an outcome may charge; null: its row does not say what the call used. */
function chargesOf({ measure }: CallLimit, detail: UnknownRecord, took: number): readonly number[] | null {
  if (isCrash(detail)) return [measure === 'concurrent' ? 0 : took]
  const isCounted = measure === 'calls' || measure === 'concurrent'
  if (detail.reason === 'detail_unstorable' && !isCounted) return null
  const used = usedInOutcome(measure, detail) ?? took
  // It was never made: nobody knew whether its decision was stored.
  const isUnused = detail.reason === 'audit_unavailable' && detail.http_status === 503
  return isUnused ? [used, 0] : [used]
}

function worstOf(faults: readonly LimitFault[]): LimitFault {
  const found = faults.filter((fault) => fault !== null)
  return found.find((fault) => 'problem' in fault) ?? found[0] ?? null
}
