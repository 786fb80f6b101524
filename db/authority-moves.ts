/**
 * Counts the changes of authority that this process made or heard of. It moves once its own change is
 * durable, before anybody is told so.
 */
export class AuthorityChanges {
  /** A plain field: it is compared for each request that leaves. */
  count = 0
  readonly #told: (() => void)[] = []

  onChange(told: () => void): void {
    this.#told.push(told)
  }

  advance(): void {
    this.count += 1
    for (const told of this.#told) told()
  }
}
