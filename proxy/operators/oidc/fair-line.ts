import { Refusal } from '../../../plugins/refusal.ts'

/** The codes that are redeemed at once. Each takes the provider a moment, or the whole of its time. */
const MAX_AT_ONCE = 32
/** The most senders that wait, and the most requests of one. */
const MAX_SENDERS = 1_000
const MAX_OF_SENDER = 16

/**
 * The line of codes to redeem: a visitor who has begun a sign-in may send any code, as often as it likes, and
 * each is a request to the identity provider. While there are too many, each sender has its turn after every
 * other one: the sender of a flood waits for itself. Refuses with `sign_in_unavailable` a sender's requests
 * beyond that.
 */
export class FairQueue {
  /** Keyed by sender, in the order of their turns. */
  readonly #waiting = new Map<string, (() => void)[]>()
  #underWay = 0

  /** Does work in the turn of a sender. Resolves or rejects as `work` does. */
  async run<T>(sender: string, work: () => Promise<T>): Promise<T> {
    if (this.#underWay < MAX_AT_ONCE) this.#underWay += 1
    else await this.#turnOf(sender)
    try {
      return await work()
    } finally {
      this.#next()
    }
  }

  #turnOf(sender: string): Promise<void> {
    const own = this.#waiting.get(sender) ?? []
    const isFull = own.length === 0 ? this.#waiting.size >= MAX_SENDERS : own.length >= MAX_OF_SENDER
    if (isFull) throw new Refusal('sign_in_unavailable', { headers: { 'retry-after': '5' } })
    return new Promise((resolve) => {
      own.push(resolve)
      this.#waiting.set(sender, own)
    })
  }

  /** Gives the place that has become free to the next sender, whose others come after everybody. */
  #next(): void {
    const [first] = this.#waiting
    if (!first) {
      this.#underWay -= 1
      return
    }
    const [sender, [begin, ...others]] = first
    this.#waiting.delete(sender)
    if (others.length > 0) this.#waiting.set(sender, others)
    begin?.()
  }
}
