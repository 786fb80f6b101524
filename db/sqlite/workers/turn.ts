interface Waiting {
  readonly worker: number
  readonly begin: () => void
}

/** A lock that one worker holds at a time, in the order of asking. Who is gone holds it no more. */
export class Turn {
  #line: Waiting[] = []

  /** Calls `begin` when it is this worker's turn, at once where nobody has it. */
  wait(worker: number, begin: () => void): void {
    this.#line.push({ worker, begin })
    if (this.#line.length === 1) begin()
  }

  /** Ends the turn of a worker; nothing happens where it has none. */
  end(worker: number): void {
    if (this.#line[0]?.worker !== worker) return
    this.#line.shift()
    this.#line[0]?.begin()
  }

  leave(worker: number): void {
    this.#line = this.#line.filter((one, place) => place === 0 || one.worker !== worker)
    this.end(worker)
  }
}
