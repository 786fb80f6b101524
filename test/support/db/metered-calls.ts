import { reservedDetail, settledDetail } from '../../../db/ledger/meters/detail.ts'
import type { MeterReservation, MeterSettlement } from '../../../db/ledger/meters/meter-book.ts'
import { LimitReached } from '../../../db/ledger/record/entry.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import type { JsonObject } from '../../../db/support/json.ts'
import { entry } from './scratch-ledger.ts'

type Committing = Pick<Ledger, 'commit'>

/** Records the decision of a call that reserves. Returns false if a limit has no room. */
export async function reserve(
  ledger: Committing,
  id: string,
  reservations: readonly MeterReservation[],
  more: JsonObject = {},
): Promise<boolean> {
  const detail = { ...more, limits: reservations.map((wish) => reservedDetail(wish, 1)) }
  return ledger.commit({ reservations, entries: [entry({ request_id: id, detail })] }).then(
    () => true,
    (error: unknown) => {
      if (!(error instanceof LimitReached)) throw error
      return false
    },
  )
}

export async function settle(
  ledger: Committing,
  id: string,
  settlements: readonly MeterSettlement[],
): Promise<void> {
  const detail = { limits: settlements.map(settledDetail) }
  const outcome = entry({ request_id: id, status: 'success', provider: 'openai', detail })
  await ledger.commit({ settlements, entries: [outcome] })
}

interface NumberedRow {
  readonly status: string
  /** JSON. */
  readonly detail: string
}

interface NumberedLimit {
  readonly id: string
  readonly span: string
  readonly n: number
  readonly used?: number
  readonly took?: number
  readonly charged?: number
}

/** The members `limits` of rows, in the order of their numbers. */
export const numberedLimits = (rows: readonly NumberedRow[]): readonly NumberedLimit[] =>
  rows
    .flatMap(({ detail }): readonly NumberedLimit[] => JSON.parse(detail).limits ?? [])
    .toSorted((one, other) => one.n - other.n)
