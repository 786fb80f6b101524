import type { Cut } from './send.ts'

/** Asks again, at this instant, whether a call would still be allowed. */
export type StillHolds = (at: number) => Promise<boolean>

/** One request under way. */
export interface OpenCall {
  /** Ends it, whatever stage it is at. */
  readonly cut: Cut
  /** Set while the answer of a gated call is streaming. */
  stillHolds: StillHolds | null
}

/**
 * The requests under way: a stop ends them when their grace is over, a revocation ends the streams it
 * concerns.
 */
export class OpenCalls {
  readonly #open = new Set<OpenCall>()
  #closed = false

  /** Remembers a call until the returned function is called. */
  add(call: OpenCall): () => void {
    this.#open.add(call)
    if (this.#closed) call.cut('drained')
    return () => this.#open.delete(call)
  }

  /** Ends every call, and those that begin from now on. */
  cutAll(): void {
    this.#closed = true
    for (const { cut } of this.#open) cut('drained')
  }

  /** Ends the streams whose principal is no longer who it was, or no longer holds what they need. */
  async cutRevoked(at: number): Promise<void> {
    await Promise.all(
      [...this.#open].map(async ({ cut, stillHolds }) => {
        if (stillHolds && !(await stillHolds(at))) cut('revoked')
      }),
    )
  }
}

/** How long a call that was cut may take to end. One that hangs must not hold a stop for ever. ms. */
const GIVE_UP_MS = 5_000

/**
 * Knows every request under way, so that a stop can wait for them: `begin` says that the process is stopping,
 * `finish` waits, and when the grace is over, what is left is cut.
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
    const forget = () => this.#underWay.delete(request)
    request.then(forget, forget)
  }

  /** From now on `/ready` says 503 and answers close their connections. */
  begin(): void {
    this.#draining = true
  }

  /** Ends what is under way now. */
  cut(): void {
    this.calls.cutAll()
  }

  /**
   * Resolves when nothing is under way any more; what is left after `graceMs` is cut off, and soon after
   * given up.
   */
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
