import type { HangupSignal, MemoryOwner, MemoryReservation } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { AskCallAgain } from './route.ts'
import type { TerminateStream } from './send.ts'

export interface OpenCall {
  terminate(reason: Parameters<TerminateStream>[0]): void
  /** Set while a call that was let through waits for its answer, and while that streams. */
  askAgain: AskCallAgain | null
  place: number
}

/**
 * The requests under way: a stop ends them when their grace is over, a revocation ends the calls it concerns.
 */
export class OpenCalls {
  // Not a Set: one that is filled and emptied all the time is made again and again, and each old one holds
  // the next until the next full collection.
  readonly #open: OpenCall[] = []
  #closed = false
  #onNone: (() => void)[] = []

  add(call: OpenCall): void {
    call.place = this.#open.push(call) - 1
    if (this.#closed) call.terminate('drained')
  }

  /** Forgets a call: its answer, and everything after it, has ended. */
  remove(call: OpenCall): void {
    const last = this.#open.pop()
    if (last && last !== call) {
      this.#open[call.place] = last
      last.place = call.place
    }
    if (this.#open.length === 0) for (const told of this.#onNone.splice(0)) told()
  }

  async whenIdle(): Promise<void> {
    while (this.#open.length > 0) await new Promise<void>((resolve) => this.#onNone.push(resolve))
  }

  get count(): number {
    return this.#open.length
  }

  /** Ends every call, and those that begin from now on. */
  terminateAll(): void {
    this.#closed = true
    for (const call of [...this.#open]) call.terminate('drained')
  }

  /** Ends the calls that would be refused if they came now. `at`: ms since the epoch. */
  async terminateRevoked(at: number): Promise<void> {
    await Promise.all(
      this.#open.map(async (call) => {
        const { askAgain: asked } = call
        // It may have ended, and another begun, while it was asked.
        if (asked && !(await isStillAllowed(asked, at)) && call.askAgain === asked) call.terminate('revoked')
      }),
    )
  }
}

/** Tells whether a call would be let through now. `at`: ms since the epoch. */
export async function isStillAllowed(ask: AskCallAgain, at: number): Promise<boolean> {
  try {
    await ask({ at })
    return true
  } catch (error) {
    if (error instanceof Refusal) return false
    throw error
  }
}

/** Tells a call that nobody waits for it any more. */
export class CallHangup implements HangupSignal {
  gone = false
  reason: unknown
  #controller: AbortController | null = null
  #told: (() => void)[] = []

  get signal(): AbortSignal {
    if (!this.#controller) {
      this.#controller = new AbortController()
      if (this.gone) this.#controller.abort(this.reason)
    }
    return this.#controller.signal
  }

  onGone(told: () => void): void {
    if (!this.gone) this.#told.push(told)
  }

  offGone(told: () => void): void {
    this.#told = this.#told.filter((one) => one !== told)
  }

  /** The first reason counts. */
  hangUp(reason?: unknown): void {
    if (this.gone) return
    this.gone = true
    this.reason = reason
    this.#controller?.abort(reason)
    for (const told of this.#told.splice(0)) told()
  }
}

/** The time that a call that was cut may take to end. One that hangs must not hold a stop for ever. ms. */
const GIVE_UP_MS = 5_000

/** Lets a stop wait for the requests under way, and cut the rest when its grace is over. */
export class RequestDrain {
  readonly calls = new OpenCalls()
  /** The calls that were cut off. */
  cut = 0
  #draining = false
  #endDelay = (): void => {}

  get draining(): boolean {
    return this.#draining
  }

  /** Makes `/ready` answer 503, and answers close their connections, from now on. */
  begin(): void {
    this.#draining = true
  }

  /** Begins, and goes on serving until balancers have seen it: so long, or until calls are cut off. */
  async delay(ms: number): Promise<void> {
    this.begin()
    if (ms === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#endDelay = resolve
    const timer = setTimeout(resolve, ms)
    await promise
    clearTimeout(timer)
  }

  terminateCalls(): void {
    this.#endDelay()
    this.cut += this.calls.count
    this.calls.terminateAll()
  }

  /** Resolves when no request is under way. The rest is cut off after `graceMs`, and soon after given up. */
  async finish(graceMs: number): Promise<void> {
    this.begin()
    const { promise: givenUp, resolve: giveUp } = Promise.withResolvers<void>()
    const cut = setTimeout(() => this.terminateCalls(), graceMs)
    const end = setTimeout(giveUp, graceMs + GIVE_UP_MS)
    await Promise.race([this.calls.whenIdle(), givenUp])
    clearTimeout(cut)
    clearTimeout(end)
  }
}

/** The bytes that may be held at once: of bodies, and of answers that are not passed on as they come. */
export interface MemoryLimits {
  /** The whole process's. */
  readonly process: number
  /** One principal's that holds a capability; the operators' together. */
  readonly perPrincipal: number
  /** One principal's that holds none; all strangers' together. */
  readonly perAnonymous: number
}

interface MemoryHolder {
  readonly id: string
  readonly size: 'perPrincipal' | 'perAnonymous'
}

// A principal's id is never so short.
const OPERATORS: MemoryHolder = { id: 'o', size: 'perPrincipal' }
const STRANGERS: MemoryHolder = { id: 's', size: 'perAnonymous' }

function holderOf({ principal, actor }: MemoryOwner): MemoryHolder {
  if (!principal) return actor ? OPERATORS : STRANGERS
  return { id: principal.id, size: principal.capabilities.length > 0 ? 'perPrincipal' : 'perAnonymous' }
}

/** The most holders in the budget without any bytes. */
const MAX_IDLE_HOLDERS = 256

/** The bytes that any caller may hold, whatever all the others do. */
const ALWAYS_ALLOWED_BYTES = 65_536

/**
 * The process's budget of bytes that calls hold (docs/threats.md#a4). Only bytes that came count. A caller
 * may hold its share, and never more than is then left free. {@link ALWAYS_ALLOWED_BYTES} is never refused.
 */
export class MemoryBudget {
  readonly #limits: MemoryLimits
  readonly #onRefused: () => void
  readonly #by = new Map<string, number>()
  #held = 0

  constructor(limits: MemoryLimits, onRefused: () => void) {
    this.#limits = limits
    this.#onRefused = onRefused
  }

  get held(): number {
    return this.#held
  }

  /** Opens the account of one call. The caller ends it. */
  open(call: KnownCall | null = null): MemoryAccount {
    return new MemoryAccount(this, call)
  }

  fits({ id, size }: MemoryHolder, bytes: number): boolean {
    const own = (this.#by.get(id) ?? 0) + bytes
    if (own <= ALWAYS_ALLOWED_BYTES) return true
    return own <= this.#limits[size] && own <= this.#limits.process - this.#held - bytes
  }

  /** Counts bytes, whether they fit or not; as held no more if `bytes` is negative. */
  count({ id }: MemoryHolder, bytes: number): void {
    const own = (this.#by.get(id) ?? 0) + bytes
    this.#held += bytes
    // Few who hold nothing are left in it: see OpenCalls.
    if (own === 0 && this.#by.size > MAX_IDLE_HOLDERS) this.#by.delete(id)
    else this.#by.set(id, own)
  }

  refusal(): Refusal {
    this.#onRefused()
    const message = 'Too many bytes of bodies and answers are held for this caller. Try again shortly.'
    return new Refusal('overloaded', { message, headers: { 'retry-after': '1' } })
  }
}

interface KnownCall {
  markKnown(): void
}

export class MemoryAccount implements MemoryReservation {
  readonly #budget: MemoryBudget
  readonly #call: KnownCall | null
  #holder = STRANGERS
  #bytes = 0
  #answer = 0
  #ended = false

  constructor(budget: MemoryBudget, call: KnownCall | null) {
    this.#budget = budget
    this.#call = call
  }

  setOwner(caller: MemoryOwner): void {
    if (caller.principal || caller.actor) this.#call?.markKnown()
    if (this.#bytes === 0) this.#holder = holderOf(caller)
  }

  /** Refuses with `overloaded` if so many more would not fit. Counts nothing. */
  requireRoom(bytes: number): void {
    if (!this.#budget.fits(this.#holder, bytes)) throw this.#budget.refusal()
  }

  tryReserve(bytes: number): boolean {
    if (this.#ended || !this.#budget.fits(this.#holder, bytes)) return false
    this.#bytes += bytes
    this.#budget.count(this.#holder, bytes)
    return true
  }

  reserveAnswer(bytes: number): void {
    if (!this.tryReserve(bytes)) throw this.#budget.refusal()
    this.#answer += bytes
  }

  reserveReply(bytes: number): void {
    if (bytes > this.#answer) this.reserveAnswer(bytes - this.#answer)
  }

  refusal(): Refusal {
    return this.#budget.refusal()
  }

  release(): void {
    if (this.#bytes > 0) this.#budget.count(this.#holder, -this.#bytes)
    this.#bytes = 0
  }

  /** The call has ended: it holds nothing any more, whatever still comes. */
  end(): void {
    this.release()
    this.#ended = true
  }
}
