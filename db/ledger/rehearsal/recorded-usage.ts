import { usedInOutcome } from '../../limits/used.ts'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import type { StoredRow } from '../record/leaf.ts'

/** A hold of a limit, as the row of its call says it. */
export interface RecordedHold {
  readonly id: string
  readonly took: number
}

/** The usage of a call, as its outcome says it. */
export interface EndedUsage {
  /** ms since the epoch. */
  readonly at: number
  readonly providers: readonly string[]
  readonly tokens: number | null
  readonly cost: number | null
  readonly charged: ReadonlyMap<string, number>
}

/** The usage of a call that was never made, or whose outcome no row says. */
export const NO_USAGE: EndedUsage = { at: 0, providers: [], tokens: null, cost: null, charged: new Map() }

/** Reads the member `limits` of a row; what is not as rows have it is passed over. */
export function holdsIn(limits: unknown): readonly RecordedHold[] {
  if (!Array.isArray(limits)) return []
  return limits.flatMap((one: unknown): readonly RecordedHold[] => {
    if (!isObject(one) || typeof one.id !== 'string' || !isCount(one.took)) return []
    return [{ id: one.id, took: one.took }]
  })
}

/** Reads an array of texts; null: it is none. */
export const textsIn = (value: unknown): readonly string[] | null =>
  Array.isArray(value) && value.every((one) => typeof one === 'string') ? value : null

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

/** Reads what an outcome says that its call has used. */
export function usageOfOutcome(
  { recorded_at, status, provider }: Pick<StoredRow, 'recorded_at' | 'status' | 'provider'>,
  detail: UnknownRecord,
): EndedUsage {
  const attempts = Array.isArray(detail.attempts) ? detail.attempts.filter(isObject) : []
  const named = attempts.flatMap((one) => (typeof one.provider === 'string' ? [one.provider] : []))
  const charges = Array.isArray(detail.limits) ? detail.limits.filter(isObject) : []
  // Of a process that died nobody knows what its calls have used.
  const isKnown = status !== 'unknown'
  return {
    at: Date.parse(recorded_at),
    providers: [...new Set(provider === null ? named : [...named, provider])],
    tokens: isKnown ? usedInOutcome('tokens', detail) : null,
    cost: isKnown || isObject(detail.cost) ? usedInOutcome('cost', detail) : null,
    charged: new Map(
      charges.flatMap(({ id, charged }) =>
        typeof id === 'string' && isCount(charged) ? [[id, charged]] : [],
      ),
    ),
  }
}
