/** The time of one turn of the loop that is given away before what comes next has to wait for another. ms. */
const TURN_MS = 5
/** Whoever has cost more than this of late is served after all others. ms. */
const LIGHT_MS = 10
/** The part of all time that a sender may take for good and still count as light. */
const LIGHT_SHARE = 0.02
/** The part of all time that is left to handshakes while everything else takes the rest. */
const LEAST_HANDSHAKE_SHARE = 0.1
/** The part of all time that is never given to handshakes. */
const SPARE = 0.05
/** The time that handshakes may take at once after a quiet spell. ms. */
const HANDSHAKE_BURST_MS = 100
/** The time over which the loop's load is measured. ms. */
const WINDOW_MS = 100

/** What a sender has cost of late: an address while it shakes hands, a connection afterwards. */
export class Sender {
  #cost = 0
  #at = 0

  /** True while it has cost little. `now`: ms of the clock that it is charged by. */
  isLight(now: number): boolean {
    this.#leak(now)
    return this.#cost < LIGHT_MS
  }

  charge(ms: number, now: number): void {
    this.#leak(now)
    this.#cost += ms
  }

  #leak(now: number): void {
    this.#cost = Math.max(0, this.#cost - (now - this.#at) * LIGHT_SHARE)
    this.#at = now
  }
}

/** Something that a sender's bytes ask the loop to do, a short piece at a time. */
export interface Work {
  readonly sender: Sender
  /** True until the connection has shaken hands. */
  readonly isHandshake: boolean
  /** Does the next piece. Returns true where another is ready. */
  turn(): boolean
}

/** Works that wait, in the order of their coming. */
interface Queue {
  readonly light: Set<Work>
  readonly heavy: Set<Work>
}

type Load = ReturnType<typeof performance.eventLoopUtilization>
type MeasureLoad = (later?: Load, earlier?: Load) => Load
const measureLoad: MeasureLoad = (later, earlier) => performance.eventLoopUtilization(later, earlier)

const lengthOf = ({ light, heavy }: Queue): number => light.size + heavy.size

function first(line: Set<Work>): Work | undefined {
  const [work] = line
  if (work) line.delete(work)
  return work
}

/**
 * Shares the event loop among all who send (docs/threats.md#a1). While there is time everything is done at
 * once, in the order of its coming. When a turn of the loop has given away its time the rest waits: first
 * come those that have cost little, then the others one by one. Handshakes get what everything else leaves,
 * and a tenth of all time at least. A work is in the queue once at most: it sees to that by itself.
 */
export class Turns {
  readonly #now: () => number
  readonly #load: MeasureLoad
  readonly #data: Queue = { light: new Set(), heavy: new Set() }
  readonly #handshakes: Queue = { light: new Set(), heavy: new Set() }
  #spent = 0
  #drains = false
  #mayShake = HANDSHAKE_BURST_MS
  #shakeShare = 1
  #shaken = 0
  #filledAt: number
  #window: { readonly at: number; readonly load: Load }

  /** `now`: ms of a clock that only goes forward. `load`: as Node measures it. */
  constructor(now = () => performance.now(), load: MeasureLoad = measureLoad) {
    this.#now = now
    this.#load = load
    this.#filledAt = now()
    this.#window = { at: now(), load: load() }
  }

  /** Does a work's next pieces now where there is time, or later. */
  offer(work: Work): void {
    const now = this.#now()
    const isDone = this.#spent < TURN_MS && this.#mayRun(work, now) && !this.#do(work, now)
    // Even then: the next turn begins with all of its time.
    if (isDone) this.#later()
    else this.#wait(work, this.#now())
  }

  #mayRun(work: Work, now: number): boolean {
    if (lengthOf(this.#data) > 0) return false
    return !work.isHandshake || (lengthOf(this.#handshakes) === 0 && this.#handshakesLeft(now))
  }

  /** Does one piece of a work and charges it. Returns true where another is ready. */
  #do(work: Work, from: number): boolean {
    const { isHandshake } = work
    const more = work.turn()
    const to = this.#now()
    const ms = to - from
    this.#spent += ms
    work.sender.charge(ms, to)
    if (isHandshake) {
      this.#mayShake -= ms
      this.#shaken += ms
    }
    return more
  }

  #wait(work: Work, now: number): void {
    const queue = work.isHandshake ? this.#handshakes : this.#data
    const line = work.sender.isLight(now) ? queue.light : queue.heavy
    line.add(work)
    this.#later()
  }

  #later(): void {
    if (this.#drains) return
    this.#drains = true
    setImmediate(() => this.#drain())
  }

  /** One turn: the light ones first, then of the handshakes and of the heavy ones at least one each. */
  #drain(): void {
    this.#drains = false
    this.#spent = 0
    while (this.#spent < TURN_MS && this.#light(this.#data));
    if (this.#handshakesLeft(this.#now())) this.#next(this.#handshakes)
    this.#heavy(this.#data)
    while (this.#spent < TURN_MS && this.#handshakesLeft(this.#now()) && this.#next(this.#handshakes));
    while (this.#spent < TURN_MS && this.#next(this.#data));
    this.#spent = 0
    if (lengthOf(this.#data) > 0) this.#later()
    else if (lengthOf(this.#handshakes) === 0) return
    else if (this.#mayShake > 0) this.#later()
    else this.#whenHandshakesMay()
  }

  /** Without a timer the loop would turn, and count as busy, for nothing. */
  #whenHandshakesMay(): void {
    if (this.#drains) return
    this.#drains = true
    setTimeout(() => this.#drain(), Math.max(1, -this.#mayShake / this.#shakeShare))
  }

  /** Does one piece of the next in line, which then goes to the end. Returns false where there is none. */
  #next(queue: Queue): boolean {
    return this.#light(queue) || this.#heavy(queue)
  }

  #light({ light, heavy }: Queue): boolean {
    for (let work = first(light); work; work = first(light)) {
      if (work.sender.isLight(this.#now())) return this.#onward(work)
      // It was, when it came.
      heavy.add(work)
    }
    return false
  }

  #heavy({ heavy }: Queue): boolean {
    const work = first(heavy)
    return work !== undefined && this.#onward(work)
  }

  #onward(work: Work): true {
    if (this.#do(work, this.#now())) this.#wait(work, this.#now())
    return true
  }

  #handshakesLeft(now: number): boolean {
    const passed = now - this.#window.at
    if (passed >= WINDOW_MS) this.#measure(now)
    this.#mayShake = Math.min(HANDSHAKE_BURST_MS, this.#mayShake + (now - this.#filledAt) * this.#shakeShare)
    this.#filledAt = now
    return this.#mayShake > 0
  }

  /** Finds the part of all time that everything but handshakes has taken in the last window. */
  #measure(now: number): void {
    const load = this.#load()
    const { active, idle } = this.#load(load, this.#window.load)
    const others = (active - this.#shaken) / (active + idle)
    this.#shakeShare = Math.max(LEAST_HANDSHAKE_SHARE, 1 - SPARE - (Number.isFinite(others) ? others : 0))
    this.#shaken = 0
    this.#window = { at: now, load }
  }
}
