import { LightFirstQueue, type SenderCost } from './inbound.ts'

/** Connections that may be between TCP and TLS, and no more than half of those that may be open. */
export const MAX_WAITING = 20_000
/** Connections of these that are read, and no more than half. */
export const MAX_HANDSHAKES = 2_048
/** Handshakes whose bytes may wait for our turn while another begins. */
const MAX_BEHIND = 24
/** The parts in which a client's silence is counted. */
const SILENT_TICKS = 20
/** Handshakes of one address that are read before one of them goes for another address. */
const MIN_CROWD = 16
/** Addresses that are looked at in one turn for one that may begin. */
const MAX_LOOKED_AT = 32

export interface HandshakeSteps {
  /** Begins to read. */
  readonly begin: () => void
  /** Does what the bytes that were read ask for. */
  readonly proceed: () => void
  readonly end: (why: 'handshake_timeout' | 'too_many_handshakes') => void
}

/**
 * `waiting`: unread. `behind`: read, or about to be; what it asks for waits for our turn. `silent`: all was
 * done, the client's bytes are missing.
 */
type HandshakeState = 'waiting' | 'behind' | 'silent' | 'over'

export class PendingHandshake {
  readonly crowd: AddressCrowd
  readonly steps: HandshakeSteps
  state: HandshakeState = 'waiting'
  /** The rest of its client's time, which runs while it is silent. */
  ticks: number
  /** True once its first bytes have come. */
  isHeard = false
  /** True once the turn in which they came is over: an end that followed them would have been seen. */
  isSettled = false

  constructor(crowd: AddressCrowd, steps: HandshakeSteps, ticks: number) {
    this.crowd = crowd
    this.steps = steps
    this.ticks = ticks
  }
}

/** The handshakes of one address. */
class AddressCrowd {
  readonly address: string
  readonly sender: SenderCost
  readonly begun = new Set<PendingHandshake>()
  isQueued = false
  size = 0
  /** Handshakes as they came, from `#from` on; some of them wait no more. */
  #waiting: PendingHandshake[] = []
  #from = 0

  constructor(address: string, sender: SenderCost) {
    this.address = address
    this.sender = sender
  }

  wait(handshake: PendingHandshake): void {
    this.#waiting.push(handshake)
  }

  get oldestWaiting(): PendingHandshake | undefined {
    for (; ; this.#from += 1) {
      const oldest = this.#waiting[this.#from]
      if (oldest?.state === 'waiting') return oldest
      if (!oldest) break
    }
    this.#waiting = []
    this.#from = 0
    return undefined
  }

  /** The one with the least of its way behind it. */
  get newest(): PendingHandshake | undefined {
    for (; this.#waiting.length > this.#from; this.#waiting.pop()) {
      const newest = this.#waiting.at(-1)
      if (newest?.state === 'waiting') return newest
    }
    return [...this.begun].at(-1)
  }

  get newestSilent(): PendingHandshake | undefined {
    return [...this.begun].findLast(({ state }) => state === 'silent')
  }
}

/** Crowds by a size of theirs: finds a largest one at once. */
class CrowdSizes {
  readonly #bySize: Set<AddressCrowd>[] = []

  change(crowd: AddressCrowd, from: number, to: number): void {
    this.#bySize[from]?.delete(crowd)
    const others = this.#bySize[to] ?? new Set()
    this.#bySize[to] = others
    if (to > 0) others.add(crowd)
    while (this.#bySize.length > 0 && !this.#bySize.at(-1)?.size) this.#bySize.pop()
  }

  get largest(): AddressCrowd | undefined {
    const [crowd] = this.#bySize.at(-1) ?? []
    return crowd
  }
}

/** The time over which is counted how many come to their end. ms. */
const WINDOW_MS = 1_000
/** Clients that come to their end in a second if any are said to keep up. */
const FLOWING = 30
/** The time in which those that are read come to their end. s. */
const AHEAD_S = 1
const MIN_AHEAD = 128
/** The number that is taken for what a herd keeps up with until it is known, and after a quiet time. */
const FIRST_RATE = 256
const QUIET_MS = 4_000

/**
 * The number of handshakes that clients keep up with. Many clients on one machine answer one after the other:
 * if all were read at once, all would be late.
 */
export class HandshakePace {
  #since: number
  #finished = 0
  /** Handshakes of the last window, in a second. */
  #rate = FIRST_RATE

  /** `now`: ms of a clock that only goes forward. */
  constructor(now: number) {
    this.#since = now
  }

  finish(now: number): void {
    this.#look(now)
    this.#finished += 1
  }

  /** Returns how many may be read at once. Any number, while hardly any come to their end. */
  mostBegun(now: number): number {
    this.#look(now)
    return this.#rate < FLOWING ? Number.POSITIVE_INFINITY : Math.max(MIN_AHEAD, this.#rate * AHEAD_S)
  }

  #look(now: number): void {
    const ms = now - this.#since
    if (ms < WINDOW_MS) return
    this.#rate = ms < QUIET_MS ? (this.#finished * 1_000) / ms : FIRST_RATE
    this.#finished = 0
    this.#since = now
  }
}

/**
 * The connections between TCP and TLS (docs/threats.md#a1). They wait unread, at hardly any cost, until there
 * is time for them: what has begun is finished first. Addresses take turns, and those that have cost little
 * come first. Where too many wait, the newest of an address with the most ends.
 */
export class PendingHandshakes {
  readonly #limit: number
  readonly #maxBegun: number
  readonly #tickMs: number
  readonly #crowds = new Map<string, AddressCrowd>()
  readonly #all = new CrowdSizes()
  readonly #begun = new CrowdSizes()
  readonly #queue = new LightFirstQueue<AddressCrowd>()
  /** Handshakes that are about to be read, or whose first bytes have just come. */
  readonly #looking = new Set<PendingHandshake>()
  readonly #silent = new Set<PendingHandshake>()
  #count = 0
  #begunCount = 0
  /** The number of these whose first bytes have come. */
  #heardCount = 0
  #behind = 0
  #looks = false
  readonly #pace = new HandshakePace(performance.now())
  /** Runs while there is any: nobody escapes it by being heard in time. */
  #clock: NodeJS.Timeout | null = null

  /** `limit`: of all of them. `silenceMs`: the silence of a client that ends its handshake, all together. */
  constructor(limit: number, silenceMs: number) {
    this.#limit = Math.min(MAX_WAITING, limit)
    this.#maxBegun = Math.min(MAX_HANDSHAKES, Math.ceil(this.#limit / 2))
    this.#tickMs = Math.max(1, silenceMs / SILENT_TICKS)
  }

  /** Takes a connection that waits. `ticks`: what is left of its client's time. */
  enter(address: string, sender: SenderCost, steps: HandshakeSteps, ticks = SILENT_TICKS): PendingHandshake {
    const handshake = this.#add(address, sender, steps, ticks)
    handshake.crowd.wait(handshake)
    this.#queueUp(handshake.crowd)
    this.#lookLater()
    this.#endOverLimit(handshake.crowd)
    return handshake
  }

  /** Takes a connection that is read already. */
  enterBegun(address: string, sender: SenderCost, steps: HandshakeSteps): PendingHandshake {
    const handshake = this.#add(address, sender, steps, SILENT_TICKS)
    this.#setBegun(handshake, 'silent')
    this.#endOverLimit(handshake.crowd)
    if (this.#begunCount > this.#maxBegun) this.#end(this.#begun.largest?.newestSilent, 'too_many_handshakes')
    return handshake
  }

  /** Called when bytes of a client have come that was silent. */
  heard(handshake: PendingHandshake): void {
    if (handshake.state === 'silent') this.#setState(handshake, 'behind')
    if (handshake.state !== 'behind' || handshake.isHeard) return
    handshake.isHeard = true
    this.#heardCount += 1
    this.#looking.add(handshake)
    this.#lookLater()
  }

  /** Called when all is done that a client's bytes have asked for. */
  answered(handshake: PendingHandshake): void {
    if (handshake.state === 'behind') this.#setState(handshake, 'silent')
  }

  /** Called when TLS stands. */
  finish(handshake: PendingHandshake): void {
    this.#pace.finish(performance.now())
    this.over(handshake)
  }

  /** Called once or more. */
  over(handshake: PendingHandshake): void {
    const { crowd, state } = handshake
    if (state === 'over') return
    this.#setState(handshake, 'over')
    this.#looking.delete(handshake)
    if (handshake.isHeard) this.#heardCount -= 1
    this.#resize(crowd, -1)
    if (crowd.begun.delete(handshake)) {
      this.#begunCount -= 1
      this.#begun.change(crowd, crowd.begun.size + 1, crowd.begun.size)
    }
    if (crowd.size === 0) {
      this.#crowds.delete(crowd.address)
      this.#queue.delete(crowd)
    }
    if (this.#count > 0 || !this.#clock) return
    clearInterval(this.#clock)
    this.#clock = null
  }

  endAll(): void {
    for (const crowd of [...this.#crowds.values()])
      while (crowd.newest) this.#end(crowd.newest, 'too_many_handshakes')
  }

  #add(address: string, sender: SenderCost, steps: HandshakeSteps, ticks: number): PendingHandshake {
    const crowd = this.#crowds.get(address) ?? new AddressCrowd(address, sender)
    this.#crowds.set(address, crowd)
    this.#resize(crowd, 1)
    this.#clock ??= setInterval(() => this.#tick(), this.#tickMs)
    return new PendingHandshake(crowd, steps, ticks)
  }

  #resize(crowd: AddressCrowd, by: 1 | -1): void {
    this.#count += by
    crowd.size += by
    this.#all.change(crowd, crowd.size - by, crowd.size)
  }

  #setState(handshake: PendingHandshake, state: HandshakeState): void {
    if (handshake.state === 'behind') this.#behind -= 1
    else if (handshake.state === 'silent') this.#silent.delete(handshake)
    handshake.state = state
    if (state === 'behind') this.#behind += 1
    else if (state === 'silent') this.#silent.add(handshake)
    if (this.#queue.size > 0) this.#lookLater()
  }

  #setBegun(handshake: PendingHandshake, state: HandshakeState): void {
    const { crowd } = handshake
    crowd.begun.add(handshake)
    this.#begunCount += 1
    this.#begun.change(crowd, crowd.begun.size - 1, crowd.begun.size)
    this.#setState(handshake, state)
  }

  #queueUp(crowd: AddressCrowd): void {
    if (crowd.isQueued) return
    crowd.isQueued = true
    this.#queue.add(crowd, performance.now())
  }

  #end(handshake: PendingHandshake | undefined, why: Parameters<HandshakeSteps['end']>[0]): void {
    if (!handshake) return
    this.over(handshake)
    handshake.steps.end(why)
  }

  #endOverLimit(newcomer: AddressCrowd): void {
    if (this.#count <= this.#limit) return
    const { largest } = this.#all
    const crowd = largest && largest.size > newcomer.size ? largest : newcomer
    this.#end(crowd.newest, 'too_many_handshakes')
  }

  /** Ends those that were silent for too long. A loop that was held counts as one tick, and is read before the next. */
  #tick(): void {
    if (this.#queue.size > 0) this.#lookLater()
    for (const handshake of this.#silent) {
      handshake.ticks -= 1
      if (handshake.ticks < 0) this.#end(handshake, 'handshake_timeout')
    }
  }

  #lookLater(): void {
    if (this.#looks) return
    this.#looks = true
    setImmediate(() => this.#look())
  }

  /** Sees after each reading of what has come who was silent and who was heard, and lets others begin. */
  #look(): void {
    this.#looks = false
    for (const handshake of this.#looking) {
      if (handshake.isHeard && !handshake.isSettled) handshake.isSettled = true
      else {
        this.#looking.delete(handshake)
        if (handshake.isHeard) handshake.steps.proceed()
        else this.#setState(handshake, 'silent')
      }
    }
    this.#beginMore()
    if (this.#looking.size > 0) this.#lookLater()
  }

  #beginMore(): void {
    const most = this.#pace.mostBegun(performance.now())
    for (let looks = MAX_LOOKED_AT; looks > 0 && this.#behind < MAX_BEHIND; looks -= 1) {
      const crowd = this.#queue.takeFairly(performance.now())
      if (!crowd) return
      crowd.isQueued = false
      const handshake = crowd.oldestWaiting
      const keepsUp = this.#heardCount < most || this.#crowdBeside(crowd) !== null
      if (handshake && keepsUp && this.#makeRoom(crowd)) {
        this.#looking.add(handshake)
        this.#setBegun(handshake, 'behind')
        handshake.steps.begin()
      }
      if (crowd.oldestWaiting) this.#queueUp(crowd)
    }
  }

  /** Returns true if another of this crowd may begin: a silent one of a larger crowd goes for it, if need be. */
  #makeRoom(crowd: AddressCrowd): boolean {
    if (this.#begunCount < this.#maxBegun) return true
    const victim = this.#crowdBeside(crowd)?.newestSilent
    this.#end(victim, 'too_many_handshakes')
    return victim !== undefined
  }

  /** Returns the address of which most are read, if they are many beside those of this one. */
  #crowdBeside(crowd: AddressCrowd): AddressCrowd | null {
    const { largest } = this.#begun
    return largest && largest.begun.size > Math.max(MIN_CROWD, crowd.begun.size + 1) ? largest : null
  }
}
