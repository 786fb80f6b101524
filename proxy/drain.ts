/**
 * Knows every request under way, so that a stop can wait for them. `draining` from the first call of `finish`;
 * `cutOff` fires when the grace is over and streams must end.
 */
export class Drain {
  readonly #underWay = new Set<Promise<void>>()
  readonly #cutOff = new AbortController()
  #draining = false

  get draining(): boolean {
    return this.#draining
  }

  get cutOff(): AbortSignal {
    return this.#cutOff.signal
  }

  readonly track = (request: Promise<void>): void => {
    this.#underWay.add(request)
    void request.finally(() => this.#underWay.delete(request))
  }

  /** From now on `/ready` says 503 and answers close their connections. */
  begin(): void {
    this.#draining = true
  }

  /** Ends the streams now. */
  cut(): void {
    this.#cutOff.abort()
  }

  /** Resolves when nothing is under way any more; what is still streaming after `graceMs` is cut off. */
  async finish(graceMs: number): Promise<void> {
    this.begin()
    const timer = setTimeout(() => this.cut(), graceMs)
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay)
    clearTimeout(timer)
  }
}
