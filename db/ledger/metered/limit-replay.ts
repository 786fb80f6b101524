import { type CallLimit, meterAt } from '../../limits/limit.ts'
import type { UnknownRecord } from '../../support/json.ts'
import type { StoredRow } from '../record/leaf.ts'
import { fixedTerms, isLimitState, limitText } from './limit-states.ts'
import { type MeterRecord, MetersOfLimit } from './replayed-meters.ts'
import { ReplayedScope } from './scope-fit.ts'

/** The states of a limit that are kept: a refusal may name an earlier one. */
const MAX_LIMIT_STATES = 16
/** The time for which a removed limit is followed. ms. */
const REMOVED_MS = 86_400_000

export interface ReplayedLimit {
  /** The last states, oldest first. Never empty. */
  readonly states: readonly CallLimit[]
  /** When a row has removed it. RFC 3339; null: it is there. */
  readonly removed: string | null
  readonly scope: ReplayedScope
  readonly meters: MetersOfLimit
}

/** The part of a limit that a call holds until its outcome. `rate`: of a steady one, in the period; null: of any other. */
export type HeldMeter = readonly [id: string, span: string, who: string, took: number, rate: number | null]

export type LimitMembers = {
  readonly states: readonly CallLimit[]
  readonly removed: string | null
  readonly forgotten: string | null
  readonly meters: MeterRecord
}

/** Says the limits, their meters, and what calls under way hold. All are absent if no row has made a limit. */
export interface LimitsState {
  readonly limits?: Readonly<Record<string, LimitMembers>>
  /** Keyed by request. */
  readonly holds?: Readonly<Record<string, readonly HeldMeter[]>>
}

/** Replays the rows that change limits (docs/ledger.md#recomputing-limits). Memory by limits and their meters. */
export class LimitReplay {
  readonly limits = new Map<string, ReplayedLimit>()
  /** The holds of calls under way, by request. */
  readonly holds = new Map<string, readonly HeldMeter[]>()

  constructor({ limits = {}, holds = {} }: LimitsState = {}) {
    for (const [id, { states, removed, forgotten, meters }] of Object.entries(limits)) {
      const [first] = states
      if (!first) throw new Error('a limit of a state has no state')
      const scope = new ReplayedScope(first.for)
      this.limits.set(id, { states, removed, scope, meters: new MetersOfLimit(first.per, meters, forgotten) })
    }
    for (const [request, held] of Object.entries(holds)) this.holds.set(request, held)
  }

  state(): LimitsState {
    if (this.limits.size === 0) return {}
    const limits = Object.fromEntries(
      [...this.limits].map(([id, { states, removed, meters }]) => [
        id,
        { states, removed, forgotten: meters.forgotten, meters: meters.members() },
      ]),
    )
    return { limits, ...(this.holds.size > 0 && { holds: Object.fromEntries(this.holds) }) }
  }

  /** Takes a row. Returns its fault, as half a sentence, or null; its content counts all the same. */
  apply({ action, recorded_at: at }: StoredRow, { limit }: UnknownRecord): string | null {
    if (!LIMIT_CHANGES.has(action)) return null
    if (!isLimitState(limit)) return 'does not carry the state of a limit'
    this.#forget(at)
    const known = this.limits.get(limit.id)
    const fault = changeFault(action, limit, known)
    if (action === 'limit.removed') {
      if (known) this.limits.set(limit.id, { ...known, removed: at })
      return fault
    }
    // Of one whose fixed terms differ the meters are another's.
    const isSame = known && fixedTerms(limit) === fixedTerms(lastState(known))
    const { states, scope, meters } = isSame
      ? known
      : { states: [], scope: new ReplayedScope(limit.for), meters: new MetersOfLimit(limit.per) }
    const next = [...states.slice(1 - MAX_LIMIT_STATES), limit]
    this.limits.set(limit.id, { states: next, removed: null, scope, meters })
    return fault
  }

  /** Forgets limits that were removed a day before and of which no call holds anything. */
  #forget(now: string): void {
    for (const [id, { removed, meters }] of this.limits)
      if (removed !== null && Date.parse(removed) + REMOVED_MS <= Date.parse(now) && meters.isIdle)
        this.limits.delete(id)
  }
}

/** The actions of rows that say the state of a limit. */
const LIMIT_CHANGES: ReadonlySet<string> = new Set(
  ['created', 'changed', 'overridden', 'removed'].map((what) => `limit.${what}`),
)

export function lastState({ states }: Pick<ReplayedLimit, 'states'>): CallLimit {
  const last = states.at(-1)
  if (!last) throw new Error('a limit has no state')
  return last
}

function changeFault(action: string, limit: CallLimit, known: ReplayedLimit | undefined): string | null {
  const { id, revision } = limit
  if (action === 'limit.created')
    return known || revision !== 1 ? `makes the limit ${id}, revision ${revision}, which is there` : null
  if (!known || known.removed !== null) return `changes the limit ${id}, which is not there`
  const last = lastState(known)
  if (action === 'limit.removed')
    return limitText(limit) === limitText(last) ? null : `removes another limit ${id} than there is`
  if (fixedTerms(limit) !== fixedTerms(last)) return `changes what the limit ${id} is for`
  return revision === last.revision + 1
    ? null
    : `makes revision ${revision} of the limit ${id}, behind ${last.revision}`
}

/** Returns the meter of a limit's state at an instant, ms since the epoch, and for whom it is. */
export function meterOf(limit: CallLimit, at: number, principal: string | null) {
  return { ...meterAt(limit, at), who: limit.each ? (principal ?? '') : '' }
}
