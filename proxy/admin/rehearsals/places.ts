import { Refusal } from '../../../plugins/refusal.ts'

/** Rehearsals of one operator, and of all, that are under way at once. Each has a thread. */
const [MOST_OWN, MOST] = [2, 4]

/** Who rehearses now, within this process. */
export class RehearsalPlaces {
  readonly #taken = new Map<string, number>()
  #all = 0;

  /** Does work in a place of an operator. Refuses with `overloaded` where there is none. */
  async in<T>(operator: string, work: () => Promise<T>): Promise<T> {
    const own = this.#taken.get(operator) ?? 0
    if (own >= MOST_OWN || this.#all >= MOST)
      throw new Refusal('overloaded', {
        message: `${own >= MOST_OWN ? `${own} rehearsals of yours` : `${this.#all} rehearsals`} are under way. Try again when one is done.`,
        headers: { 'retry-after': '5' },
      })
    this.#taken.set(operator, own + 1)
    this.#all += 1
    try {
      return await work()
    } finally {
      const left = (this.#taken.get(operator) ?? 1) - 1
      if (left === 0) this.#taken.delete(operator)
      else this.#taken.set(operator, left)
      this.#all -= 1
    }
  }
}
