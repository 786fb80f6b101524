import type { HangupSignal, MemoryOwner, MemoryReservation } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { WaitingLine } from './memory/waiting-line.ts'
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
  /** One principal's that holds a capability; one operator's. */
  readonly perPrincipal: number
  /** One principal's that holds none; all strangers' together. */
  readonly perAnonymous: number
}

interface MemoryHolder {
  readonly id: string
  readonly size: 'perPrincipal' | 'perAnonymous'
}

// No id of a principal is so short.
const STRANGERS: MemoryHolder = { id: 's', size: 'perAnonymous' }

function holderOf({ principal, actor }: MemoryOwner): MemoryHolder {
  if (!principal) return actor ? { id: `o ${actor.id}`, size: 'perPrincipal' } : STRANGERS
  return { id: principal.id, size: principal.capabilities.length > 0 ? 'perPrincipal' : 'perAnonymous' }
}

/** The most holders in the budget without any bytes. */
const MAX_IDLE_HOLDERS = 256

/** The bytes that any caller may hold, whatever all the others do. */
const ALWAYS_ALLOWED_BYTES = 65_536
/** The longest body. A caller that holds nothing else may hold one, however small its share is. */
export const MAX_BODY_BYTES = 32 * 1_048_576
/** The part of a share that long bodies may have: answers have the rest as well, and short bodies a bit more. */
const BODIES_SHARE = 0.75

/** A reservation that a caller makes. */
interface WantedBytes {
  readonly bytes: number
  /** The bytes that the same call holds already. */
  readonly held: number
  readonly isBody: boolean
}

/**
 * The process's budget of bytes that calls hold (docs/threats.md#a4). A caller may hold its share, and never
 * more than is then left free. {@link ALWAYS_ALLOWED_BYTES} is never refused. What does not fit waits in
 * {@link WaitingLine}.
 */
export class MemoryBudget {
  readonly #limits: MemoryLimits
  readonly #onRefused: () => void
  readonly #onWait: () => void
  readonly #by = new Map<string, number>()
  readonly line: WaitingLine
  #held = 0

  constructor(limits: MemoryLimits, onRefused: () => void, onWait = (): void => {}, waitMs?: number) {
    this.line = new WaitingLine(waitMs)
    this.#limits = limits
    this.#onRefused = onRefused
    this.#onWait = onWait
  }

  get held(): number {
    return this.#held
  }

  /** Opens the account of one call. The caller ends it. */
  open(call: KnownCall | null = null, hangup: HangupSignal = new CallHangup()): MemoryAccount {
    return new MemoryAccount(this, call, hangup)
  }

  fits(holder: MemoryHolder, wanted: WantedBytes): boolean {
    const { bytes } = wanted
    const own = (this.#by.get(holder.id) ?? 0) + bytes
    if (own <= ALWAYS_ALLOWED_BYTES) return true
    return own <= this.#shareOf(holder, wanted) && own <= this.#limits.process - this.#held - bytes
  }

  /** Tells whether it would fit if nobody held anything but the call itself. */
  mayFit(holder: MemoryHolder, { bytes, held }: WantedBytes): boolean {
    const most = Math.max(this.#limits[holder.size], longestOf(holder))
    return held + bytes <= Math.min(most, this.#limits.process / 2)
  }

  #shareOf(holder: MemoryHolder, { bytes, held, isBody }: WantedBytes): number {
    const share = this.#limits[holder.size]
    const isAlone = (this.#by.get(holder.id) ?? 0) - held <= ALWAYS_ALLOWED_BYTES
    if (isAlone) return Math.max(share, longestOf(holder))
    if (!isBody) return share
    return bytes > ALWAYS_ALLOWED_BYTES ? share * BODIES_SHARE : share + ALWAYS_ALLOWED_BYTES
  }

  /** Counts bytes, whether they fit or not; as held no more if `bytes` is negative. */
  count({ id }: MemoryHolder, bytes: number): void {
    const own = (this.#by.get(id) ?? 0) + bytes
    this.#held += bytes
    // Few who hold nothing are left in it: see OpenCalls.
    if (own === 0 && this.#by.size > MAX_IDLE_HOLDERS) this.#by.delete(id)
    else this.#by.set(id, own)
    if (bytes < 0 && this.line.length > 0) this.line.offer()
  }

  waits(): void {
    this.#onWait()
  }

  refusal(): Refusal {
    this.#onRefused()
    const message = 'Too many bytes of bodies and answers are held for this caller. Try again shortly.'
    return new Refusal('overloaded', { message, headers: { 'retry-after': '1' } })
  }
}

const longestOf = ({ size }: MemoryHolder): number => (size === 'perPrincipal' ? MAX_BODY_BYTES : 0)

interface KnownCall {
  markKnown(): void
}

export class MemoryAccount implements MemoryReservation {
  readonly #budget: MemoryBudget
  readonly #call: KnownCall | null
  readonly #hangup: HangupSignal
  #holder = STRANGERS
  #bytes = 0
  #answer = 0
  #ended = false

  constructor(budget: MemoryBudget, call: KnownCall | null, hangup: HangupSignal) {
    this.#budget = budget
    this.#call = call
    this.#hangup = hangup
  }

  setOwner(caller: MemoryOwner): void {
    if (caller.principal || caller.actor) this.#call?.markKnown()
    if (this.#bytes === 0) this.#holder = holderOf(caller)
  }

  tryReserve(bytes: number, isBody = false): boolean {
    if (this.#ended || !this.#budget.fits(this.#holder, { bytes, held: this.#bytes, isBody })) return false
    this.#bytes += bytes
    this.#budget.count(this.#holder, bytes)
    return true
  }

  /**
   * Counts more bytes of a body, or as much of an answer, as soon as they fit; undefined: they are counted.
   * Refuses with `overloaded` if they have not fitted for 20 s, or never can.
   */
  reserveInTurn(bytes: number, isBody = false): Promise<void> | undefined {
    const mayPass = bytes <= ALWAYS_ALLOWED_BYTES || !this.#budget.line.has(this.#inLine(isBody))
    return mayPass && this.tryReserve(bytes, isBody) ? undefined : this.#reserveLater(bytes, isBody)
  }

  async #reserveLater(bytes: number, isBody: boolean): Promise<void> {
    const { gone, reason } = this.#hangup
    if (gone) throw reason instanceof Refusal ? reason : new Refusal('client_gone')
    if (this.#ended || !this.#budget.mayFit(this.#holder, { bytes, held: this.#bytes, isBody }))
      throw this.#budget.refusal()
    this.#budget.waits()
    const take = (): boolean => this.tryReserve(bytes, isBody)
    if (await this.#budget.line.wait(this.#inLine(isBody), take, this.#hangup)) return
    throw this.#hangup.gone ? new Refusal('client_gone') : this.#budget.refusal()
  }

  /** A caller's answers do not wait behind its bodies: what has begun is finished first. */
  #inLine(isBody: boolean): string {
    return isBody ? this.#holder.id : `${this.#holder.id} answers`
  }

  reserveAnswerInTurn(bytes: number): Promise<void> | undefined {
    this.#answer += bytes
    return this.reserveInTurn(bytes)
  }

  reserveReply(bytes: number): Promise<void> | undefined {
    const more = bytes - this.#answer
    if (more <= 0) return undefined
    if (more <= ALWAYS_ALLOWED_BYTES) return this.reserveAnswerInTurn(more)
    // It is made already: if many waited, all of them would be in memory all the same.
    if (!this.tryReserve(more)) throw this.#budget.refusal()
    this.#answer = bytes
    return undefined
  }

  /** Counts fewer bytes. Default: none. */
  release(bytes = this.#bytes): void {
    if (bytes > 0) this.#budget.count(this.#holder, -bytes)
    this.#bytes -= bytes
  }

  /** The call has ended: it holds nothing any more, whatever still comes. */
  end(): void {
    this.release()
    this.#ended = true
  }
}
