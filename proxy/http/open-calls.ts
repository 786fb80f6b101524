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

/** The requests under way: a stop ends them when their grace is over, a revocation ends the streams it concerns. */
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
