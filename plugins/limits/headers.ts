import { type CallLimit, isRatePeriod, limitWindow, meterAt } from '../../db/limits/limit.ts'

/** A limit and what is used of it, as a call has left it. */
export interface LimitReading {
  readonly limit: CallLimit
  readonly used: number
}

/** A caller may read how far it is of these: cost and tokens are known when a call has ended. */
const isStated = ({ show, on, measure }: CallLimit): boolean =>
  show && on === 'refuse' && (measure === 'calls' || measure === 'concurrent')

/** The greatest integer of a structured field (RFC 9651 §3.3.1). */
const MAX_INTEGER = 999_999_999_999_999

const integer = (value: number): number => Math.min(MAX_INTEGER, Math.max(0, Math.ceil(value)))

/**
 * Makes the headers that state limits of calls and of calls at once (draft-ietf-httpapi-ratelimit-headers-10), or none.
 * `at`: the arrival of the call, ms since the epoch. Says nothing of limits that do not show themselves.
 */
export function rateLimitHeaders(
  readings: readonly LimitReading[],
  at: number,
): Readonly<Record<string, string>> {
  const stated = readings.filter(({ limit }) => isStated(limit))
  if (stated.length === 0) return {}
  return {
    'ratelimit-policy': stated.map(({ limit }) => policyOf(limit, at)).join(', '),
    ratelimit: stated.map((reading) => remainderOf(reading, at)).join(', '),
  }
}

/** The time in which all of an amount comes free: of its window, or of a steady rate from empty to full. s. */
function windowS(limit: CallLimit, at: number): number | null {
  const { most } = meterAt(limit, at)
  if (isRatePeriod(limit.per)) return refillS(limit, most, at)
  const window = limitWindow(limit, at)
  return window && (window.until - window.from) / 1_000
}

function refillS(limit: CallLimit, units: number, at: number): number | null {
  const { refill } = meterAt(limit, at)
  return refill ? (units * refill.periodMs) / (refill.rate * 1_000) : null
}

function policyOf(limit: CallLimit, at: number): string {
  const window = windowS(limit, at)
  const unit = limit.measure === 'concurrent' ? ';qu="concurrent-requests"' : ''
  const time = window === null ? '' : `;w=${integer(window)}`
  return `"${limit.name}";q=${integer(meterAt(limit, at).most)}${unit}${time}`
}

function remainderOf({ limit, used }: LimitReading, at: number): string {
  const { most } = meterAt(limit, at)
  const until = limitWindow(limit, at)?.until
  const resetS = until === undefined ? refillS(limit, used, at) : (until - at) / 1_000
  return `"${limit.name}";r=${integer(most - used)}${resetS === null ? '' : `;t=${integer(resetS)}`}`
}
