import type { Caller, Hangup, Held } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { AskCallAgain } from './route.ts'
import type { Cut } from './send.ts'

/** One request under way. */
export interface OpenCall {
  /** Ends the request, whatever stage it is at. */
  cut(reason: Parameters<Cut>[0]): void
  /** Set while a call that was let through waits for its answer, and while that streams. */
  askAgain: AskCallAgain | null
  /** Where it stands among those under way. */
  place: number
}

/**
 * The requests under way: a stop ends them when their grace is over, a revocation ends the calls it concerns.
 */
export class OpenCalls {
  // Not a Set: one that is filled and emptied all the time is made anew again and again, and each that is old
  // holds the next, and the calls that it had, until the next full collection.
  readonly #open: OpenCall[] = []
  #closed = false
  #onNone: (() => void)[] = []

  /** Remembers a call until it is over. */
  add(call: OpenCall): void {
    call.place = this.#open.push(call) - 1
    if (this.#closed) call.cut('drained')
  }

  /** Forgets a call: its answer has ended, and what follows it is done. */
  over(call: OpenCall): void {
    const last = this.#open.pop()
    if (last && last !== call) {
      this.#open[call.place] = last
      last.place = call.place
    }
    if (this.#open.length === 0) for (const told of this.#onNone.splice(0)) told()
  }

  /** Resolves when none is under way. */
  async none(): Promise<void> {
    while (this.#open.length > 0) await new Promise<void>((resolve) => this.#onNone.push(resolve))
  }

  /** Ends every call, and those that begin from now on. */
  cutAll(): void {
    this.#closed = true
    for (const call of [...this.#open]) call.cut('drained')
  }

  /** Ends the calls, waiting or streaming, that would be refused if they came now. `at`: ms since the epoch. */
  async cutRevoked(at: number): Promise<void> {
    await Promise.all(
      this.#open.map(async (call) => {
        const { askAgain: asked } = call
        // It may have ended, and another begun, while it was asked.
        if (asked && !(await isLetThrough(asked, at)) && call.askAgain === asked) call.cut('revoked')
      }),
    )
  }
}

/** Tells whether a call would be let through now. `at`: ms since the epoch. */
export async function isLetThrough(ask: AskCallAgain, at: number): Promise<boolean> {
  try {
    await ask({ at })
    return true
  } catch (error) {
    if (error instanceof Refusal) return false
    throw error
  }
}

/** Tells a call that nobody waits for it any more. */
export class CallHangup implements Hangup {
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

/**
 * Lets a stop wait for the requests under way: `begin` marks the process as stopping, `finish` waits, and cuts
 * the rest when the grace is over.
 */
export class Drain {
  readonly calls = new OpenCalls()
  #draining = false

  get draining(): boolean {
    return this.#draining
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
    await Promise.race([this.calls.none(), givenUp])
    clearTimeout(cut)
    clearTimeout(end)
  }
}

/** The bytes that may be held at once: of bodies, and of answers that are not passed on as they come. */
export interface HeldLimits {
  /** In the whole process. */
  readonly whole: number
  /** By one principal that holds a capability; by the operators together. */
  readonly share: number
  /** By one principal that holds none; by all strangers together. */
  readonly little: number
}

/** Those whose bytes are counted together. */
interface Holder {
  readonly id: string
  readonly size: 'share' | 'little'
}

// A principal's id is never so short.
const OPERATORS: Holder = { id: 'o', size: 'share' }
const STRANGERS: Holder = { id: 's', size: 'little' }

function holderOf({ principal, actor }: Caller): Holder {
  if (!principal) return actor ? OPERATORS : STRANGERS
  return { id: principal.id, size: principal.capabilities.length > 0 ? 'share' : 'little' }
}

/** So many may stand in the budget without holding anything. */
const FEW = 256

/** The bytes that any caller may hold, whatever all the others do. */
const ALWAYS = 65_536

/**
 * The process's budget of bytes that calls hold (docs/threats.md#a4). What has come counts, never what was only
 * announced. A caller may hold its share, and never more than is then left free: alone half of the whole, and
 * one that comes late half of what the others have left. {@link ALWAYS} is never refused.
 */
export class Budget {
  readonly #limits: HeldLimits
  readonly #onRefused: () => void
  readonly #by = new Map<string, number>()
  #held = 0

  /** `onRefused` is called for each refusal. */
  constructor(limits: HeldLimits, onRefused: () => void) {
    this.#limits = limits
    this.#onRefused = onRefused
  }

  /** The bytes that all calls hold now. */
  get held(): number {
    return this.#held
  }

  /** Opens the account of one call. Whoever opens it ends it. */
  open(call: KnownCall | null = null): Account {
    return new Account(this, call)
  }

  fits({ id, size }: Holder, bytes: number): boolean {
    const own = (this.#by.get(id) ?? 0) + bytes
    if (own <= ALWAYS) return true
    return own <= this.#limits[size] && own <= this.#limits.whole - this.#held - bytes
  }

  /** Counts bytes, whether they fit or not; as held no more where `bytes` is negative. */
  count({ id }: Holder, bytes: number): void {
    const own = (this.#by.get(id) ?? 0) + bytes
    this.#held += bytes
    // Few who hold nothing are left in it: see OpenCalls.
    if (own === 0 && this.#by.size > FEW) this.#by.delete(id)
    else this.#by.set(id, own)
  }

  /** Makes the refusal of what does not fit. */
  refusal(): Refusal {
    this.#onRefused()
    const message = 'Too many bytes of bodies and answers are held for this caller. Try again shortly.'
    return new Refusal('overloaded', { message, headers: { 'retry-after': '1' } })
  }
}

/** A call that is told that its caller is known. */
interface KnownCall {
  known(): void
}

/** The account of one call in the budget. */
export class Account implements Held {
  readonly #budget: Budget
  readonly #call: KnownCall | null
  #holder = STRANGERS
  #bytes = 0
  #answer = 0
  #ended = false

  constructor(budget: Budget, call: KnownCall | null) {
    this.#budget = budget
    this.#call = call
  }

  by(caller: Caller): void {
    if (caller.principal || caller.actor) this.#call?.known()
    if (this.#bytes === 0) this.#holder = holderOf(caller)
  }

  /** Refuses with `overloaded` where so many more would not fit. Counts nothing. */
  ask(bytes: number): void {
    if (!this.#budget.fits(this.#holder, bytes)) throw this.#budget.refusal()
  }

  tries(bytes: number): boolean {
    if (this.#ended || !this.#budget.fits(this.#holder, bytes)) return false
    this.#bytes += bytes
    this.#budget.count(this.#holder, bytes)
    return true
  }

  takeAnswer(bytes: number): void {
    if (!this.tries(bytes)) throw this.#budget.refusal()
    this.#answer += bytes
  }

  sends(bytes: number): void {
    if (bytes > this.#answer) this.takeAnswer(bytes - this.#answer)
  }

  refusal(): Refusal {
    return this.#budget.refusal()
  }

  /** Counts what was held as held no more. */
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
