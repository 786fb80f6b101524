import type { HangupSignal } from '../../../plugins/plugin.ts'
import type { McpMessage } from '../protocol/message.ts'
import type { CallerSession } from './sessions.ts'

interface RequestCaller {
  readonly principalId: string
  readonly session: Pick<CallerSession, 'id'> | null
}

interface CancellableRequest extends RequestCaller {
  readonly message: McpMessage
  readonly hangup: HangupSignal
}

export type CancelRequest = (caller: RequestCaller, requestId: unknown) => void

export interface CancellationTicket {
  /** Tells when nobody waits any more: the caller hung up, or takes the request back. */
  readonly hangup: HangupSignal
  readonly end: () => void
}

export class RequestCancellations {
  // Not a Map, which would be filled and emptied all the time (proxy/http/open-calls.ts says why).
  readonly #underWay: CancellableHangup[] = []

  /** Registers a request until its ticket's `end`. */
  begin(request: CancellableRequest): CancellationTicket {
    const { message } = request
    if (message.era === 'modern' || message.id === null) return { hangup: request.hangup, end: NOTHING }
    const hangup = new CancellableHangup(request, message.id)
    hangup.place = this.#underWay.push(hangup) - 1
    return { hangup, end: () => this.#over(hangup) }
  }

  cancel(caller: RequestCaller, requestId: unknown): void {
    const theirs = this.#underWay.filter((one) => one.isOf(caller, requestId))
    for (const one of theirs) one.withdraw()
  }

  #over(request: CancellableHangup): void {
    if (this.#underWay[request.place] !== request) return
    const last = this.#underWay.pop()
    if (!last || last === request) return
    this.#underWay[request.place] = last
    last.place = request.place
  }
}

const NOTHING = (): void => {}

/** Tells of the caller's hang-up, or that it took its request back, whichever comes first. */
class CancellableHangup implements HangupSignal {
  readonly #caller: RequestCaller
  /** JSON text. */
  readonly #id: string
  readonly #callers: HangupSignal
  place = 0
  #told: (() => void)[] = []
  #withdrawn: AbortController | null = null

  constructor(request: CancellableRequest, id: string) {
    this.#caller = request
    this.#id = id
    this.#callers = request.hangup
  }

  isOf({ principalId, session }: RequestCaller, id: unknown): boolean {
    const own = this.#caller
    const isTheirs = own.principalId === principalId && own.session?.id === session?.id
    return isTheirs && JSON.parse(this.#id) === id
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
