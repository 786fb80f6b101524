import { buildConnector } from 'undici'

/** The longest wait after the first failure; it doubles with each further one. ms. */
const FIRST_WAIT_MS = 1_000
/** A call waits for it: longer waits are its program's own. */
const MAX_WAIT_MS = 8_000
/** The time to connect, behind all others that come back after an outage. ms. */
const CONNECT_MS = 30_000

/** Spreads the tries to connect again: each waits for a random part of a time that doubles (full jitter). */
export class ReconnectPace {
  readonly #random: () => number
  #failures = 0

  /** `random`: 0 to 1. */
  constructor(random = Math.random) {
    this.#random = random
  }

  get failures(): number {
    return this.#failures
  }

  /** The time before the next try. ms. Zero while nothing has failed. */
  get waitMs(): number {
    if (this.#failures === 0) return 0
    return this.#random() * Math.min(FIRST_WAIT_MS * 2 ** (this.#failures - 1), MAX_WAIT_MS)
  }

  /** `before`: the failures when the try began: tries side by side fail together. */
  failed(before: number): void {
    if (before === this.#failures) this.#failures += 1
  }

  /** Notes a connection that broke under a call: so did those of all other clients, perhaps. */
  broke(): void {
    this.#failures = Math.max(1, this.#failures)
  }

  succeeded(): void {
    this.#failures = 0
  }
}

/** Makes undici's connector, at the pace of the tries before. */
export function pacedConnector(
  pace: ReconnectPace,
  options: buildConnector.BuildOptions,
): buildConnector.connector {
  const connect = buildConnector({ timeout: CONNECT_MS, ...options })
  return (wanted, callback) => {
    const attempt = (): void => {
      const { failures } = pace
      connect(wanted, (...outcome) => {
        if (outcome[0]) pace.failed(failures)
        else pace.succeeded()
        callback(...outcome)
      })
    }
    const { waitMs } = pace
    if (waitMs === 0) attempt()
    else setTimeout(attempt, waitMs)
  }
}

/** Tells a connection that the other side has ended under a call. */
export const isBroken = (error: Error): boolean =>
  'code' in error && ['UND_ERR_SOCKET', 'ECONNRESET', 'EPIPE'].includes(String(error.code))
