import type { StoredRow } from '../record/leaf.ts'
import type { CallVerdict } from './verdict.ts'

/** Calls that would wait for an approval: on how many days (UTC) there were any, and how many a day. */
export interface HeldCalls {
  readonly days: number
  /** On such a day, rounded up. */
  readonly per_day: number
  readonly most_per_day: number
}

export interface CallGroup {
  /** The name that the ledger has for it. */
  readonly principal_id: string | null
  readonly action: string
  readonly tool: string | null
  readonly model: string | null
  /** Missing, now or then; null if that is not why. */
  readonly capability: string | null
  /** Why they would be refused; of calls that would be allowed, why they were not. */
  readonly reason: string
  readonly decisions: number
  readonly first_at: string
  readonly last_at: string
  /** Three request ids at most, of the first calls. */
  readonly samples: readonly string[]
  /** Absent: that is not why. */
  readonly newly_held?: HeldCalls
}

/** Groups of one pile, most calls first, and the number of calls in all of them. */
export interface CallPile {
  readonly decisions: number
  readonly groups: readonly CallGroup[]
  /** True: there were more groups than are kept or shown. */
  readonly truncated: boolean
  /** The same of all its calls; null: none would wait for an approval. */
  readonly held: HeldCalls | null
}

const SHOWN = 500
/** The most groups followed. Calls of further kinds are counted together. */
const FOLLOWED = 20_000
const SAMPLES = 3

type MutableCallGroup = { -readonly [Member in keyof CallGroup]: CallGroup[Member] } & {
  samples: string[]
  /** The numbers of calls that would wait for an approval, by the day. */
  days: Map<string, number>
}

function heldCalls(days: ReadonlyMap<string, number>): HeldCalls | null {
  if (days.size === 0) return null
  const counts = [...days.values()]
  const all = counts.reduce((sum, count) => sum + count, 0)
  return { days: days.size, per_day: Math.ceil(all / days.size), most_per_day: Math.max(...counts) }
}

/** Groups calls by caller, target and reason. Memory by groups, not by calls. */
export class CallGrouping {
  readonly #groups = new Map<string, MutableCallGroup>()
  readonly #days = new Map<string, number>()
  readonly #isRefused: boolean
  #decisions = 0
  #overflowed = false

  /** `refused`: calls that would be; otherwise those that would be allowed. */
  constructor(kind: 'refused' | 'allowed') {
    this.#isRefused = kind === 'refused'
  }

  /** `row`: any of its kind; `at` and `id`: of the call itself. */
  add(
    row: StoredRow,
    verdict: NonNullable<CallVerdict>,
    { count, at, id }: { readonly count: number; readonly at: string; readonly id: string | null },
  ): void {
    this.#decisions += count
    const { principal_id, action, tool, model } = row
    const { reason, capability } = verdict
    const name = JSON.stringify([principal_id, action, tool, model, capability, reason])
    const group = this.#groups.get(name)
    const days = group?.days ?? new Map<string, number>()
    if (this.#isRefused && reason === 'approval_required')
      for (const tally of [days, this.#days]) tally.set(dayOf(at), (tally.get(dayOf(at)) ?? 0) + count)
    if (group) {
      group.decisions += count
      if (at < group.first_at) group.first_at = at
      if (at > group.last_at) group.last_at = at
      if (id !== null && group.samples.length < SAMPLES) group.samples.push(id)
    } else if (this.#groups.size < FOLLOWED) {
      const samples = id === null ? [] : [id]
      const first = { decisions: count, first_at: at, last_at: at, samples, days }
      this.#groups.set(name, { principal_id, action, tool, model, capability, reason, ...first })
    } else this.#overflowed = true
  }

  pile(): CallPile {
    const groups = [...this.#groups.values()].toSorted((a, b) => b.decisions - a.decisions)
    const truncated = this.#overflowed || groups.length > SHOWN
    const shown = groups.slice(0, SHOWN).map(({ days, ...group }) => {
      const held = heldCalls(days)
      return held ? { ...group, newly_held: held } : group
    })
    return { decisions: this.#decisions, groups: shown, truncated, held: heldCalls(this.#days) }
  }
}

const dayOf = (at: string): string => at.slice(0, 10)
