import type { MeterRefusal } from '../../db/ledger/meters/meter-book.ts'
import { type CallLimit, resetAt } from '../../db/limits/limit.ts'
import type { JsonObject } from '../../db/support/json.ts'
import { timestamp } from '../../db/support/statement.ts'
import { Refusal } from '../refusal.ts'
import { amountText } from './amount-text.ts'
import { rateLimitHeaders } from './headers.ts'

/** A caller that waits for calls under way, or for a steady rate, asks again after so long. s. */
const WAIT_S = 5
/** A longer wait is none: the client must stop and say when it may go on. s. */
const MAX_WAIT_S = 60

/** The detail of the row of a call that had no room (docs/ledger.md#limits). */
export const overDetail = (
  { limit: id, who, span, n, used, took, most }: MeterRefusal,
  revision: number,
): JsonObject => ({ ...(who !== '' && { each: true }), ...{ id, revision, span, n, used, took, most } })

interface RefusedCallFacts extends Pick<Refusal, 'recorded'> {
  readonly at: number
  readonly wire: string | null
  readonly routed?: readonly string[]
}

/**
 * Makes the refusal of a call that a limit has no room for. `at`: ms since the epoch. `wire`: the caller's API; on
 * `responses` a client that must stop knows it by its own word.
 */
export function limitRefusal(
  limit: CallLimit,
  over: MeterRefusal,
  { at, wire, recorded, routed }: RefusedCallFacts,
): Refusal {
  const { measure, show, name } = limit
  const reset = resetAt(limit, at)
  const isUsedUp = over.spent + (measure === 'concurrent' ? 0 : 1) > over.most && reset !== null
  const waitS =
    isUsedUp && reset !== null ? Math.max(1, Math.ceil((reset - at) / 1_000)) : waitFor(limit, over)
  const resets = isUsedUp && reset !== null ? { resets_at: timestamp(reset) } : {}
  const shown = {
    limit: name,
    measure,
    amount: over.most,
    spent: over.spent,
    reserved: over.used - over.spent,
  }
  const mustStop = waitS > MAX_WAIT_S
  return new Refusal('limit_reached', {
    message: sentenceOf(limit, over, isUsedUp ? reset : null),
    detail: { ...(show && shown), ...resets },
    ...{ final: mustStop, recorded },
    // For the row, if it is refused before the ledger is asked.
    report: { limit: overDetail(over, limit.revision), ...(routed && { routed }) },
    headers: { 'retry-after': String(waitS), ...rateLimitHeaders([{ limit, used: over.used }], at) },
    ...(mustStop &&
      wire === 'responses' && {
        said: { type: 'usage_limit_reached', resets_at: Math.ceil((at + waitS * 1_000) / 1_000) },
      }),
  })
}

/** The wait of a caller that no window's beginning helps: a day if only an operator can. s. */
function waitFor({ per }: CallLimit, { took, most }: MeterRefusal): number {
  if (per === 'ever' || took > most) return 86_400
  return WAIT_S
}

function sentenceOf(
  limit: CallLimit,
  { took, most, used, spent }: MeterRefusal,
  reset: number | null,
): string {
  const name = limit.show ? limit.name : 'A limit'
  const amount = (count: number) => amountText(limit.measure, count)
  if (reset !== null)
    return limit.show
      ? `${name} is used up: ${amount(spent)} of ${amount(most)}. It begins again on ${timestamp(reset)}.`
      : `A limit of this call is used up. It begins again on ${timestamp(reset)}.`
  if (limit.measure === 'concurrent')
    return `${name} is reached: as many calls are under way as may be. Wait for one of them to end.`
  if (!limit.show) return 'A limit has no room for this call now.'
  if (took > most - spent)
    return `This call would hold ${amount(took)} of ${name}, which has ${amount(Math.max(0, most - used))} left.`
  return `${name} has no room until calls under way have ended: ${amount(used)} of ${amount(most)} are held or spent.`
}
