import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Database } from '../database.ts'
import { type MeterState, NEW_METER, usageOf } from '../ledger/meters/meter-book.ts'
import { type CallLimit, meterAt } from './limit.ts'
import { readMeters, readMetersOf, readSharedMeters } from './store.ts'

/** The use of one meter at an instant. */
export interface MeterUsage {
  /** The ledger name of one principal; empty: all together. */
  readonly who: string
  /** With what calls under way hold. */
  readonly used: number
  readonly spent: number
  /** The amount that may be used. */
  readonly amount: number
}

interface OwnedMeter extends MeterState {
  readonly who: string
}

/** Says how much meters of a limit have used at an instant (ms since the epoch), the highest first. */
export function meterUsages(
  limit: CallLimit,
  meters: readonly OwnedMeter[],
  at: number,
): readonly MeterUsage[] {
  const { most: amount, refill } = meterAt(limit, at)
  return meters
    .map(({ who, ...state }) => ({ who, ...usageOf(state, refill), amount }))
    .toSorted((one, other) => other.used - one.used)
}

/** The part of an amount that is used. An amount of nothing is used up. */
export const usedPart = ({ used, amount }: Pick<MeterUsage, 'used' | 'amount'>): number =>
  amount === 0 ? 1 : used / amount

/** A limit and its highest meters; null: they were not read. */
export interface LimitUsageReading<Limit extends CallLimit> {
  readonly limit: Limit
  readonly meters: readonly MeterUsage[] | null
}

/** The meters that are read of a limit whose meters are refilled: what is stored of them is not what they are at. */
const MAX_REFILLED = 100

interface UsageQuestion {
  /** ms since the epoch. */
  readonly at: number
  /** The meters of each limit that each principal has. */
  readonly most: number
  /** The limits of each principal that are read: each is a look at as many meters as there are principals. */
  readonly mostEach: number
}

/** Reads how much is used of limits now: those that callers share by one question, the others one after the other. */
export async function readUsage<Limit extends CallLimit>(
  database: Pick<Database, 'kysely'>,
  limits: readonly Limit[],
  { at, most, mostEach }: UsageQuestion,
): Promise<readonly LimitUsageReading<Limit>[]> {
  const shared = await readShared(
    database,
    limits.filter(({ each }) => !each),
    at,
  )
  const each: LimitUsageReading<Limit>[] = []
  for (const limit of limits.filter((one) => one.each)) {
    const isRead = each.length < mostEach
    each.push({ limit, meters: isRead ? await highestMeters(database, limit, { at, most }) : null })
    if (isRead) await nextTurn()
  }
  return [...shared, ...each]
}

/** The limits whose meters are read at once: no reading holds up other calls for long. */
const PORTION = 64

/** A limit, and the meter that the calls of one principal count on. */
export interface OwnUsageReading<Limit extends CallLimit> {
  readonly limit: Limit
  readonly meter: MeterUsage
}

/** Reads how much is used now of the limits of one principal, in their order. `ref`: its name in the ledger. */
export async function readOwnUsage<Limit extends CallLimit>(
  database: Pick<Database, 'kysely'>,
  limits: readonly Limit[],
  { ref, at }: { readonly ref: string; readonly at: number },
): Promise<readonly OwnUsageReading<Limit>[]> {
  const all: OwnUsageReading<Limit>[] = []
  for (let from = 0; from < limits.length; from += PORTION) {
    if (from > 0) await nextTurn()
    all.push(...(await readOwnPortion(database, limits.slice(from, from + PORTION), { ref, at })))
  }
  return all
}

async function readOwnPortion<Limit extends CallLimit>(
  database: Pick<Database, 'kysely'>,
  limits: readonly Limit[],
  { ref, at }: { readonly ref: string; readonly at: number },
): Promise<readonly OwnUsageReading<Limit>[]> {
  const found = await readMetersOf(database, {
    ids: limits.map(({ id }) => id),
    owners: ['', ref],
    spans: [...new Set(limits.map((limit) => meterAt(limit, at).span))],
  })
  const states = new Map(
    found.map(({ limit_id: id, who, span, ...state }) => [`${id} ${who} ${span}`, state]),
  )
  return limits.map((limit) => {
    const { span, refill, most: amount } = meterAt(limit, at)
    const who = limit.each ? ref : ''
    const state = states.get(`${limit.id} ${who} ${span}`) ?? NEW_METER
    return { limit, meter: { who, ...usageOf(state, refill), amount } }
  })
}

async function readShared<Limit extends CallLimit>(
  database: Pick<Database, 'kysely'>,
  limits: readonly Limit[],
  at: number,
): Promise<readonly LimitUsageReading<Limit>[]> {
  if (limits.length === 0) return []
  const spans = [...new Set(limits.map((limit) => meterAt(limit, at).span))]
  const found = new Map(
    (await readSharedMeters(database, spans)).map(({ limit_id: id, span, ...state }) => [
      `${id} ${span}`,
      state,
    ]),
  )
  return limits.map((limit) => {
    const state = found.get(`${limit.id} ${meterAt(limit, at).span}`) ?? NEW_METER
    return { limit, meters: meterUsages(limit, [{ who: '', ...state }], at) }
  })
}

async function highestMeters(
  database: Pick<Database, 'kysely'>,
  limit: CallLimit,
  { at, most }: Pick<UsageQuestion, 'at' | 'most'>,
): Promise<readonly MeterUsage[]> {
  const { span, refill } = meterAt(limit, at)
  const read = await readMeters(database, { id: limit.id, span, most: refill ? MAX_REFILLED : most })
  return meterUsages(limit, read, at).slice(0, most)
}
