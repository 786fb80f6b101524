import { OUTCOMES } from '../../ledger/record/outcomes.ts'
import type { Work, WorkResult } from '../../ledger/record/writer.ts'

/** The places of decisions without outcome, by the id of their request. */
type Open = Map<string, number>

/**
 * Knows which allowed decisions of each worker have no outcome yet: as many as there are calls under way. Those
 * of a worker that is gone belong to whoever takes them over, to write their outcomes.
 */
export class OpenCallsOfAll {
  readonly #of = new Map<number, Open>()
  #left: Open

  /** `left`: what earlier runs have left open, by the id of the request. */
  constructor(left: ReadonlyMap<string, number>) {
    this.#left = new Map(left)
  }

  /** Notes what a worker's batch has stored. */
  note(owner: number, batch: readonly Work[], results: readonly WorkResult[]): void {
    const open = this.#openOf(owner)
    for (const [unit, { drafts }] of batch.entries()) {
      const result = results[unit]
      if (!result || !('sealed' in result)) continue
      for (const [row, { request_id: request, status }] of drafts.entries()) {
        if (request === null) continue
        if (status === 'allowed') open.set(request, result.sealed[row]?.seq ?? 0)
        else if (OUTCOMES.has(status)) open.delete(request)
      }
    }
  }

  /** A worker has died: what it left waits for another one. */
  leave(owner: number): void {
    for (const [request, place] of this.#openOf(owner)) this.#left.set(request, place)
    this.#of.delete(owner)
  }

  /** Makes what was left a worker's own, so that nobody else closes it too, and returns the places. */
  take(owner: number): readonly number[] {
    const open = this.#openOf(owner)
    const places = [...this.#left.values()]
    for (const [request, place] of this.#left) open.set(request, place)
    this.#left = new Map()
    return places
  }

  #openOf(owner: number): Open {
    const open = this.#of.get(owner) ?? new Map<string, number>()
    this.#of.set(owner, open)
    return open
  }
}
