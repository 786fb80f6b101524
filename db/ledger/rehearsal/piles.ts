import type { StoredRow } from '../record/leaf.ts'
import type { CallVerdict } from './verdict.ts'

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
}

/** Groups of one pile, most calls first, and the number of calls in all of them. */
export interface CallPile {
  readonly decisions: number
  readonly groups: readonly CallGroup[]
  /** True: there were more groups than are kept or shown. */
  readonly truncated: boolean
}

const SHOWN = 500
/** The most groups followed. Calls of further kinds are counted together. */
const FOLLOWED = 20_000
const SAMPLES = 3

type MutableCallGroup = { -readonly [Member in keyof CallGroup]: CallGroup[Member] } & { samples: string[] }

/** Groups calls by caller, target and reason. Memory by groups, not by calls. */
export class CallGrouping {
  readonly #groups = new Map<string, MutableCallGroup>()
  #decisions = 0
  #overflowed = false

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
    if (group) {
      group.decisions += count
      if (at < group.first_at) group.first_at = at
      if (at > group.last_at) group.last_at = at
      if (id !== null && group.samples.length < SAMPLES) group.samples.push(id)
    } else if (this.#groups.size < FOLLOWED) {
      const samples = id === null ? [] : [id]
      const first = { decisions: count, first_at: at, last_at: at, samples }
      this.#groups.set(name, { principal_id, action, tool, model, capability, reason, ...first })
    } else this.#overflowed = true
  }

  pile(): CallPile {
    const groups = [...this.#groups.values()].toSorted((a, b) => b.decisions - a.decisions)
    const truncated = this.#overflowed || groups.length > SHOWN
    return { decisions: this.#decisions, groups: groups.slice(0, SHOWN), truncated }
  }
}
