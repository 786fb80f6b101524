import type { Cut } from './send.ts'

/** Tells whether a call would still be allowed at this instant. */
export type StillHolds = (at: number) => Promise<boolean>

/** One request under way. */
export interface OpenCall {
  /** Ends the request, whatever stage it is at. */
  readonly cut: Cut
  /** Set while a gated call waits for its answer, and while that streams. */
  stillHolds: StillHolds | null
}

/**
 * The requests under way: a stop ends them when their grace is over, a revocation ends the calls it concerns.
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

  /**
   * Ends the calls, waiting or streaming, whose principal is not the same any more, or does not hold what
   * they need.
   */
  async cutRevoked(at: number): Promise<void> {
    await Promise.all(
      [...this.#open].map(async ({ cut, stillHolds }) => {
        if (stillHolds && !(await stillHolds(at))) cut('revoked')
      }),
    )
  }
}

/** The time that a call that was cut may take to end. One that hangs must not hold a stop for ever. ms. */
const GIVE_UP_MS = 5_000

/**
 * Tracks every request under way, so that a stop can wait for them: `begin` marks the process as stopping,
 * `finish` waits, and cuts the rest when the grace is over.
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

  /** Makes `/ready` answer 503, and answers close their connections, from now on. */
  begin(): void {
    this.#draining = true
  }

  /** Ends the requests under way now. */
  cut(): void {
    this.calls.cutAll()
  }

  /**
   * Resolves when no request is under way any more. The rest is cut off after `graceMs`, and soon after given
   * up.
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
