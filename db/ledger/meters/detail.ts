import type { JsonObject } from '../../support/json.ts'
import type { MeterReservation, MeterSettlement } from './meter-book.ts'

/**
 * A number in a row's detail that its writer knows alone: of a meter, in the order of the unit's reservations and
 * settlements, and of the names of their members.
 */
export const BY_WRITER: JsonObject = Object.freeze({})

/**
 * The member of a decision's `limits` for a reservation (docs/ledger.md#limits). `revision`: of the limit as the call
 * was judged by it.
 */
export const reservedDetail = (
  { limit: id, who, span, took }: MeterReservation,
  revision: number,
): JsonObject => ({
  ...(who !== '' && { each: true }),
  ...{ id, revision, span, took, n: BY_WRITER, used: BY_WRITER },
})

/** The member of an outcome's `limits` for a settlement. */
export const settledDetail = ({ limit: id, span, charged }: MeterSettlement): JsonObject => ({
  id,
  span,
  charged,
  n: BY_WRITER,
})
