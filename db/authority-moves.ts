/**
 * Counts, in this process, the changes of what decisions are made by. It moves when a change of this process's own is
 * durable, before anybody is told so, and with each change of another process that is heard of. It never goes back.
 */
export class AuthorityChanges {
  /** A plain field: it is compared for each request that leaves. */
  count = 0
  readonly #told: (() => void)[] = []

  /** Calls `told`, which must not throw, with each move from now on. */
  onChange(told: () => void): void {
    this.#told.push(told)
  }

  advance(): void {
    this.count += 1
    for (const told of this.#told) told()
  }
}
