import { OpenCalls } from './open-calls.ts'

/** How long a call that was cut may take to end. One that hangs must not hold a stop for ever. ms. */
const GIVE_UP_MS = 5_000

/**
 * Knows every request under way, so that a stop can wait for them. `draining` from the first call of `finish`; when the
 * grace is over, what is left is cut.
 */
export class Drain {
  readonly calls = new OpenCalls()
  readonly #underWay = new Set<Promise<void>>()
  #draining = false

  get draining(): boolean {
    return this.#draining
  }

  readonly track = (request: Promise<void>): void => {
    this.#underWay.add(request)
    void request.finally(() => this.#underWay.delete(request))
  }

  /** From now on `/ready` says 503 and answers close their connections. */
  begin(): void {
    this.#draining = true
  }

  /** Ends what is under way now. */
  cut(): void {
    this.calls.cutAll()
  }

  /** Resolves when nothing is under way any more; what is left after `graceMs` is cut off, and soon after given up. */
  async finish(graceMs: number): Promise<void> {
    this.begin()
    const { promise: givenUp, resolve: giveUp } = Promise.withResolvers<void>()
    const cut = setTimeout(() => this.cut(), graceMs)
    const end = setTimeout(giveUp, graceMs + GIVE_UP_MS)
    await Promise.race([this.#ended(), givenUp])
    clearTimeout(cut)
    clearTimeout(end)
  }

  async #ended(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay)
  }
}
