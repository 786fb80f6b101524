/**
 * Works on one object after the other, in the order of asking. Within this process; other processes are found
 * by the object's revision.
 */
export class KeyedQueue {
  readonly #last = new Map<string, Promise<unknown>>()

  /** Does `work` when all earlier work for `key` is done. Resolves or rejects as `work` does. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key)
    const done = before ? before.then(work, work) : work()
    this.#last.set(key, done)
    try {
      return await done
    } finally {
      if (this.#last.get(key) === done) this.#last.delete(key)
    }
  }
}
