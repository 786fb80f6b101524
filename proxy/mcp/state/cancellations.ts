import type { Hangup } from '../../../plugins/plugin.ts'
import type { McpMessage } from '../protocol/message.ts'
import type { CallerSession } from './sessions.ts'

interface Caller {
  readonly principalId: string
  readonly session: CallerSession | null
  readonly message: McpMessage
}

interface Request extends Caller {
  readonly hangup: Hangup
}

export interface Ticket {
  /** Tells when nobody waits any more: the caller hung up, or takes the request back. */
  readonly hangup: Hangup
  readonly end: () => void
}

/**
 * The requests of legacy callers under way; `notifications/cancelled` takes back those of its own session.
 */
export class Cancellations {
  readonly #underWay = new Map<string, Withdrawable>()

  /** Registers a request until its ticket's `end`. */
  begin(request: Request): Ticket {
    const { hangup: callers, message } = request
    if (message.era === 'modern' || message.id === null) return { hangup: callers, end: () => {} }
    const key = keyOf(request, JSON.parse(message.id))
    const hangup = new Withdrawable(callers)
    // Two requests of one id are the client's mistake; the later one can be taken back.
    this.#underWay.set(key, hangup)
    const end = (): void => {
      if (this.#underWay.get(key) === hangup) this.#underWay.delete(key)
    }
    return { hangup, end }
  }

  /** Cancels a request of the caller's. `requestId` as the notification says it. */
  cancel(caller: Caller, requestId: unknown): void {
    this.#underWay.get(keyOf(caller, requestId))?.withdraw()
  }
}

/** Tells of the caller's hang-up, or that it took its request back, whichever comes first. */
class Withdrawable implements Hangup {
  readonly #callers: Hangup
  #told: (() => void)[] = []
  #withdrawn: AbortController | null = null

  constructor(callers: Hangup) {
    this.#callers = callers
  }

  get gone(): boolean {
    return this.#callers.gone || this.#withdrawn?.signal.aborted === true
  }

  get reason(): unknown {
    return this.#callers.reason
  }

  get signal(): AbortSignal {
    this.#withdrawn ??= new AbortController()
    return AbortSignal.any([this.#callers.signal, this.#withdrawn.signal])
  }

  onGone(told: () => void): void {
    if (this.gone) return
    this.#callers.onGone(told)
    this.#told.push(told)
  }

  offGone(told: () => void): void {
    this.#callers.offGone(told)
    this.#told = this.#told.filter((one) => one !== told)
  }

  withdraw(): void {
    if (this.gone) return
    this.#withdrawn ??= new AbortController()
    this.#withdrawn.abort()
    for (const told of this.#told.splice(0)) {
      // Once: the caller may still hang up.
      this.#callers.offGone(told)
      told()
    }
  }
}

const keyOf = ({ principalId, session }: Caller, id: unknown): string =>
  JSON.stringify([principalId, session?.id ?? null, id])
