import type { Hangup } from '../../../plugins/plugin.ts'
import { CallHangup } from '../../http/open-calls.ts'
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
  readonly #underWay = new Map<string, CallHangup>()

  /** Registers a request until its ticket's `end`. */
  begin(request: Request): Ticket {
    const { hangup: callers, message } = request
    if (message.era === 'modern' || message.id === null) return { hangup: callers, end: () => {} }
    const key = keyOf(request, JSON.parse(message.id))
    const hangup = new CallHangup()
    const hangUp = (): void => hangup.hangUp(callers.reason)
    if (callers.gone) hangUp()
    else callers.onGone(hangUp)
    // Two requests of one id are the client's mistake; the later one can be taken back.
    this.#underWay.set(key, hangup)
    const end = (): void => {
      callers.offGone(hangUp)
      if (this.#underWay.get(key) === hangup) this.#underWay.delete(key)
    }
    return { hangup, end }
  }

  /** Cancels a request of the caller's. `requestId` as the notification says it. */
  cancel(caller: Caller, requestId: unknown): void {
    this.#underWay.get(keyOf(caller, requestId))?.hangUp()
  }
}

const keyOf = ({ principalId, session }: Caller, id: unknown): string =>
  JSON.stringify([principalId, session?.id ?? null, id])
