/**
 * Counts the changes of authority that this process made or heard of. It moves once a change of its own is
 * durable, before anybody is told so, and with each change heard from another process. It never goes back.
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
