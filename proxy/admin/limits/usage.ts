import { setImmediate as nextTurn } from 'node:timers/promises'
import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import { type MeterState, NEW_METER, usageOf } from '../../../db/ledger/meters/meter-book.ts'
import { type CallLimit, isRatePeriod, meterAt, resetAt } from '../../../db/limits/limit.ts'
import { type LimitRecord, listLimits, readMeters, readSharedMeters } from '../../../db/limits/store.ts'
import { principalNames } from '../../../db/principals/subject-keys.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { type OperationResult, readOperation } from '../operation/operation.ts'
import { idParams, instant } from '../operation/shapes.ts'
import { limitOf, limitShape, limitView } from './limits.ts'

const MAX_SHOWN = 100

const meterMembers = {
  principal: z.string().nullable().meta({ description: 'Null: all together.' }),
  used: z.int().meta({ description: 'With what calls under way hold.' }),
  spent: z.int(),
  amount: z.int(),
}
const meterShape = z.strictObject(meterMembers)

const namedMeterShape = z.strictObject({
  ...meterMembers,
  ...{ principal_type: z.string().nullable(), principal_name: z.string().nullable() },
})

export type NamedMeter = OperationResult<z.output<typeof namedMeterShape>>['value']

type MeterView = z.output<typeof meterShape>

interface OwnedMeter extends MeterState {
  readonly who: string
}

/** Says how much meters of a limit have used at an instant, the highest first. */
function meterViews(limit: CallLimit, meters: readonly OwnedMeter[], at: number): MeterView[] {
  const { most: amount, refill } = meterAt(limit, at)
  return meters
    .map(({ who, ...state }) => ({ principal: who === '' ? null : who, ...usageOf(state, refill), amount }))
    .toSorted((one, other) => other.used - one.used)
}

const resetText = (limit: CallLimit, at: number): string | null => {
  const reset = resetAt(limit, at)
  return reset === null ? null : timestamp(reset)
}

/** The principals that a list names for each limit. */
const MAX_NEAREST = 3
/** The limits of each principal whose meters a list reads. */
const MAX_EACH_READ = 100

const usageShape = z.strictObject({
  limit: limitShape,
  resets_at: instant.nullable(),
  meters: z.array(namedMeterShape).nullable().meta({ description: 'Null: they were not read.' }),
})

export type NamedUsage = OperationResult<z.output<typeof usageShape>>['value']

interface ReadLimit {
  readonly limit: LimitRecord
  readonly meters: readonly MeterView[] | null
}

/** Reads the meters that callers share: one question, however many limits there are. */
async function readShared(
  database: Pick<Database, 'kysely'>,
  limits: readonly LimitRecord[],
  at: number,
): Promise<readonly ReadLimit[]> {
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
    return { limit, meters: meterViews(limit, [{ who: '', ...state }], at) }
  })
}

async function nearestMeters(database: Pick<Database, 'kysely'>, limit: LimitRecord, at: number) {
  const { span, refill } = meterAt(limit, at)
  // What a steady meter is at now is not what is stored of it.
  const most = refill ? MAX_SHOWN : MAX_NEAREST
  return meterViews(limit, await readMeters(database, { id: limit.id, span, most }), at).slice(0, MAX_NEAREST)
}

async function readEach(
  database: Pick<Database, 'kysely'>,
  limits: readonly LimitRecord[],
  at: number,
): Promise<readonly ReadLimit[]> {
  const read: ReadLimit[] = []
  for (const limit of limits) {
    const isRead = read.length < MAX_EACH_READ
    read.push({ limit, meters: isRead ? await nearestMeters(database, limit, at) : null })
    // Each is a look at as many meters as there are principals.
    if (isRead) await nextTurn()
  }
  return read
}

/** Gives the meters of principals their names of now. */
async function namedUsages(
  database: Pick<Database, 'kysely'>,
  read: readonly ReadLimit[],
  at: number,
): Promise<NamedUsage[]> {
  const refs = read.flatMap(({ meters }) => (meters ?? []).flatMap(({ principal }) => principal ?? []))
  const known = await principalNames(database, refs)
  const nameOf = (meter: MeterView): NamedMeter => {
    const one = known.get(meter.principal ?? '')
    return { ...meter, principal_type: one?.type ?? null, principal_name: one?.id ?? null }
  }
  return read.map(({ limit, meters }) => ({
    limit: limitView(limit),
    resets_at: resetText(limit, at),
    meters: meters?.map(nameOf) ?? null,
  }))
}

/** The part of its amount that is used by who is nearest to it. An amount of nothing is used up. */
export const usedPart = ({ meters }: Pick<NamedUsage, 'meters'>): number =>
  Math.max(0, ...(meters ?? []).map(({ used, amount }) => (amount === 0 ? 1 : used / amount)))

const nearestFirst = (limits: readonly NamedUsage[]): NamedUsage[] =>
  limits.toSorted((one, other) => usedPart(other) - usedPart(one))

/** Lists all limits with what is used of each now, the nearest to its amount first. For pages; no route has it. */
export const listLimitUsage = readOperation({
  name: 'listLimitUsage',
  summary: 'Lists the limits with what is used of each.',
  takes: {},
  output: z.strictObject({ limits: z.array(usageShape) }),
  run: async ({ database }, _, { at }) => {
    const all = await listLimits(database)
    const shared = await readShared(
      database,
      all.filter(({ each }) => !each),
      at,
    )
    const each = await readEach(
      database,
      all.filter((limit) => limit.each),
      at,
    )
    return { value: { limits: nearestFirst(await namedUsages(database, [...shared, ...each], at)) } }
  },
})

/** Shows what is used of one limit, with the names of principals. For a page; no route has it. */
export const showNamedUsage = readOperation({
  name: 'showNamedUsage',
  summary: 'Shows how much of the limit is used now, with names.',
  takes: { params: idParams },
  output: usageShape,
  reasons: ['not_found'],
  run: async (context, { params: { id } }, { at }) => {
    const { database } = context
    const limit = await limitOf(context, id)
    const { span } = meterAt(limit, at)
    const found = await readMeters(database, { id, span, most: MAX_SHOWN })
    const meters = meterViews(
      limit,
      found.length === 0 && !limit.each ? [{ who: '', ...NEW_METER }] : found,
      at,
    )
    const [value] = await namedUsages(database, [{ limit, meters }], at)
    return { value: value ?? { limit: limitView(limit), resets_at: null, meters: null } }
  },
})

/** The part from which somebody should know of it. */
const NEAR = 0.8

/**
 * Lists the limits of a window of which more than four fifths are used, the nearest first. Does NOT look at
 * limits that each principal has: those are as many meters as there are principals. For Attention; no route has it.
 */
export const listNearLimits = readOperation({
  name: 'listNearLimits',
  summary: 'Lists limits that are nearly used up.',
  takes: {},
  output: z.strictObject({ limits: z.array(usageShape) }),
  run: async ({ database }, _, { at }) => {
    const all = await listLimits(database)
    // A steady rate is near its amount for a moment, as calls under way are.
    const windows = all.filter(({ each, per }) => !each && per !== undefined && !isRatePeriod(per))
    const read = await readShared(database, windows, at)
    const near = read.filter(({ meters }) =>
      meters?.some(({ used, amount }) => amount > 0 && used > NEAR * amount),
    )
    return { value: { limits: nearestFirst(await namedUsages(database, near, at)) } }
  },
})

const limitUsageShape = z.strictObject({
  span: z.string().meta({ description: 'The beginning of its window; `ever`, `steady` or `now`.' }),
  resets_at: instant.nullable(),
  meters: z.array(meterShape),
})

export type LimitUsage = z.output<typeof limitUsageShape>

export const showLimitUsage = readOperation({
  name: 'showLimitUsage',
  summary: 'Shows how much of the limit is used now, by the highest first.',
  takes: { params: idParams },
  output: limitUsageShape,
  reasons: ['not_found'],
  run: async (context, { params: { id } }, { at }) => {
    const limit = await limitOf(context, id)
    const { span } = meterAt(limit, at)
    const meters = meterViews(limit, await readMeters(context.database, { id, span, most: MAX_SHOWN }), at)
    return { value: { span, resets_at: resetText(limit, at), meters } }
  },
})
