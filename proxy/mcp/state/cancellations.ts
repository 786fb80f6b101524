import type { McpMessage } from '../protocol/message.ts'
import type { CallerSession } from './sessions.ts'

interface Caller {
  readonly principalId: string
  readonly session: CallerSession | null
  readonly message: McpMessage
}

export interface Ticket {
  /** Fires when the caller takes the request back. */
  readonly signal: AbortSignal
  readonly end: () => void
}

/**
 * The requests of legacy callers under way; `notifications/cancelled` takes back those of its own session.
 */
export class Cancellations {
  readonly #underWay = new Map<string, AbortController>()

  /** Registers a request until its ticket's `end`. */
  begin(caller: Caller): Ticket {
    const controller = new AbortController()
    const { id, era } = caller.message
    if (era === 'modern' || id === null) return { signal: controller.signal, end: () => {} }
    const key = keyOf(caller, JSON.parse(id))
    // Two requests of one id are the client's mistake; the later one can be taken back.
    this.#underWay.set(key, controller)
    const end = (): void => {
      if (this.#underWay.get(key) === controller) this.#underWay.delete(key)
    }
    return { signal: controller.signal, end }
  }

  /** Cancels a request of the caller's. `requestId` as the notification says it. */
  cancel(caller: Caller, requestId: unknown): void {
    this.#underWay.get(keyOf(caller, requestId))?.abort()
  }
}

const keyOf = ({ principalId, session }: Caller, id: unknown): string =>
  JSON.stringify([principalId, session?.id ?? null, id])
