/** One of every so many works is of a sender that has cost much, if one waits. */
const HEAVY_TURN = 4

interface ChargedWork {
  /** `isLight`: true while the sender has cost little. `now`: ms of the clock that it is charged by. */
  readonly sender: { isLight(now: number): boolean }
}

/** Works in line, each once at most: those whose senders have cost little come first. */
export class LightFirstQueue<Work extends ChargedWork> {
  readonly #light = new Set<Work>()
  readonly #heavy = new Set<Work>()
  #taken = 0

  get size(): number {
    return this.#light.size + this.#heavy.size
  }

  add(work: Work, now: number): void {
    const line = work.sender.isLight(now) ? this.#light : this.#heavy
    line.add(work)
  }

  delete(work: Work): void {
    if (!this.#light.delete(work)) this.#heavy.delete(work)
  }

  /** Takes the next one. However many light ones come, every fourth is a heavy one. */
  takeFairly(now: number): Work | undefined {
    this.#taken += 1
    return this.#taken % HEAVY_TURN === 0 ? (this.takeHeavy() ?? this.takeLight(now)) : this.take(now)
  }

  take(now: number): Work | undefined {
    return this.takeLight(now) ?? this.takeHeavy()
  }

  takeLight(now: number): Work | undefined {
    let work = dequeue(this.#light)
    for (; work && !work.sender.isLight(now); work = dequeue(this.#light)) this.#heavy.add(work)
    return work
  }

  takeHeavy(): Work | undefined {
    return dequeue(this.#heavy)
  }
}

function dequeue<Work>(line: Set<Work>): Work | undefined {
  const [work] = line
  if (work) line.delete(work)
  return work
}
