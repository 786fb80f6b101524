import { isIPv6 } from 'node:net'
import { boundedCache } from '../../db/support/bounded-cache.ts'
import type { NoticeChannel } from '../../db/support/notices.ts'

/**
 * The failures within the window before an address or a principal waits (docs/protocol.md#admin-throttle).
 */
const MAX_FAILURES = 10
const WINDOW_MS = 60_000
/** Bounds each of the two lists, so that no flood grows them. */
const MAX_REMEMBERED = 10_000

/** A clock that only goes forward, whatever is set: ms since some instant of its own. */
export type MonotonicClock = () => number

export const monotonicClock: MonotonicClock = performance.now.bind(performance)

interface FailureCount {
  readonly failures: number
  /** The end of the first failure's window. ms of the monotonic clock. */
  readonly until: number
}

/**
 * Counts failures over a fixed window. Lost with the process. Those who wait are kept apart from those who
 * may still try: a flood of single failures lets nobody in who has to wait.
 */
export class FailureThrottle {
  readonly #now: MonotonicClock
  readonly #tell: (who: string) => void
  readonly #counts = boundedCache<FailureCount>(MAX_REMEMBERED)
  /** The end of each one's wait. ms of the monotonic clock. */
  readonly #waits = boundedCache<number>(MAX_REMEMBERED)

  /**
   * `tell` is called for each failure that counts: for other processes, which call {@link addRemoteFailure}.
   */
  constructor(now = monotonicClock, tell: (who: string) => void = notifyNobody) {
    this.#now = now
    this.#tell = tell
  }

  /** Returns the seconds to wait, or 0 if this one may try. */
  waitS(who: string): number {
    const at = this.#now()
    const until = this.#waits.get(who) ?? at
    return at < until ? Math.ceil((until - at) / 1000) : 0
  }

  /** Counts a failure. One that comes while its sender waits changes nothing. */
  recordFailure(who: string): void {
    if (this.waitS(who) > 0) return
    this.addRemoteFailure(who)
    this.#tell(who)
  }

  /** Counts a failure as {@link recordFailure} does, and tells nobody. */
  addRemoteFailure(who: string): void {
    if (this.waitS(who) > 0) return
    const at = this.#now()
    const known = this.#counts.get(who)
    const { failures, until } = known && at < known.until ? known : { failures: 0, until: at + WINDOW_MS }
    if (failures + 1 < MAX_FAILURES) {
      this.#counts.set(who, { failures: failures + 1, until })
      return
    }
    this.#counts.delete(who)
    this.#waits.set(who, until)
  }
}

const notifyNobody = (): void => {}

/** Names the sender of an address: IPv4 itself, also as IPv6; of IPv6 its network of 64 bits. */
export function senderOf(address: string): string {
  const [bare = ''] = address.toLowerCase().split('%')
  if (!isIPv6(bare)) return bare
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/.exec(bare)?.[1]
  if (mapped !== undefined) return mapped
  const [head = '', tail] = bare.split('::')
  const groups = head.split(':').filter((group) => group !== '')
  // `::` stands for as many empty groups as are missing of eight. An IPv4 address at the end takes two.
  const after = (tail ?? '').split(':').filter((group) => group !== '')
  const taken = groups.length + after.length + (bare.includes('.') ? 1 : 0)
  const whole = tail === undefined ? groups : [...groups, ...Array<string>(8 - taken).fill('0'), ...after]
  const network = whole.slice(0, 4).map((group) => Number.parseInt(group, 16).toString(16))
  return `${network.join(':')}::/64`
}

/** Makes a throttle whose failures count wherever they were made. While processes do not hear each other, each counts its own. */
export function sharedThrottle(now: MonotonicClock, notices: NoticeChannel, topic: string): FailureThrottle {
  const throttle = new FailureThrottle(now, (who) => notices.notify(topic, who))
  notices.on(topic, (who) => throttle.addRemoteFailure(who))
  return throttle
}
