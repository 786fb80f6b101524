import { z } from 'zod'
import type { Database } from '../../../db/database.ts'
import { NEW_METER } from '../../../db/ledger/meters/meter-book.ts'
import { alertedStep, isAlertable, readAlerted } from '../../../db/limits/alerts.ts'
import { type CallLimit, meterAt, resetAt } from '../../../db/limits/limit.ts'
import { compileScope } from '../../../db/limits/scope.ts'
import { type LimitRecord, listLimits, readMeters } from '../../../db/limits/store.ts'
import {
  type LimitUsageReading,
  type MeterUsage,
  meterUsages,
  readOwnUsage,
  readUsage,
  usedPart,
} from '../../../db/limits/usage.ts'
import { findPrincipal } from '../../../db/principals/read.ts'
import { ledgerNameOf, principalNames } from '../../../db/principals/subject-keys.ts'
import { timestamp } from '../../../db/support/statement.ts'
import { notFound } from '../../../plugins/refusal.ts'
import { mapInBatches } from '../../../plugins/turns.ts'
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

/** Names nobody by null. */
const meterView = ({ who, ...usage }: MeterUsage): MeterView => ({
  principal: who === '' ? null : who,
  ...usage,
})

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

/** Gives the meters of principals their names of now. */
async function namedUsages(
  database: Pick<Database, 'kysely'>,
  read: readonly LimitUsageReading<LimitRecord>[],
  at: number,
): Promise<NamedUsage[]> {
  const refs = read.flatMap(({ meters }) => (meters ?? []).flatMap(({ who }) => (who === '' ? [] : who)))
  const known = await principalNames(database, refs)
  const nameOf = (meter: MeterUsage): NamedMeter => {
    const one = known.get(meter.who)
    return { ...meterView(meter), principal_type: one?.type ?? null, principal_name: one?.id ?? null }
  }
  return read.map(({ limit, meters }) => ({
    limit: limitView(limit),
    resets_at: resetText(limit, at),
    meters: meters?.map(nameOf) ?? null,
  }))
}

/** The part of its amount that is used by who is nearest to it. */
export const nearestPart = ({ meters }: Pick<NamedUsage, 'meters'>): number =>
  Math.max(0, ...(meters ?? []).map(usedPart))

const nearestFirst = (limits: readonly NamedUsage[]): NamedUsage[] =>
  limits.toSorted((one, other) => nearestPart(other) - nearestPart(one))

/** Lists all limits with what is used of each now, the nearest to its amount first. For pages; no route has it. */
export const listLimitUsage = readOperation({
  name: 'listLimitUsage',
  summary: 'Lists the limits with what is used of each.',
  takes: {},
  output: z.strictObject({ limits: z.array(usageShape) }),
  run: async ({ database }, _, { at }) => {
    const question = { at, most: MAX_NEAREST, mostEach: MAX_EACH_READ }
    const read = await readUsage(database, await listLimits(database), question)
    return { value: { limits: nearestFirst(await namedUsages(database, read, at)) } }
  },
})

/** The limits whose patterns are compiled in one turn of the loop. */
const COMPILED_AT_ONCE = 16

/**
 * Lists the limits that apply to calls of one principal with what is used of them, the nearest to its amount first. For a
 * page; no route has it.
 */
export const listLimitsOfOne = readOperation({
  name: 'listLimitsOfOne',
  summary: 'Lists the limits of calls of a principal.',
  takes: { query: z.object({ principal: z.string() }) },
  output: z.strictObject({ limits: z.array(usageShape) }),
  reasons: ['not_found'],
  run: async ({ database }, { query: { principal: id } }, { at }) => {
    const ref = await ledgerNameOf(database, id)
    const type = (await principalNames(database, [ref])).get(ref)?.type
    const principal = type && (await findPrincipal(database, type, id))
    if (!type || !principal) throw notFound(`There is no principal ${id}.`)
    const { capabilities } = principal
    const own = await mapInBatches(await listLimits(database), COMPILED_AT_ONCE, (limit) =>
      compileScope(limit.for).fitsPrincipal({ id, type, capabilities }) ? [limit] : [],
    )
    const read = await readOwnUsage(database, own.flat(), { ref, at })
    const usages = read.map(({ limit, meter }) => ({ limit, meters: [meter] }))
    return { value: { limits: nearestFirst(await namedUsages(database, usages, at)) } }
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
    const meters = meterUsages(
      limit,
      found.length === 0 && !limit.each ? [{ who: '', ...NEW_METER }] : found,
      at,
    )
    const [value] = await namedUsages(database, [{ limit, meters }], at)
    return { value: value ?? { limit: limitView(limit), resets_at: null, meters: null } }
  },
})

/** The step, in percent, from which somebody should know of it. */
const NEAR = 80

/**
 * Lists the limits of a window that have reached four fifths of their amount, the nearest first. Of limits that each
 * principal has, those are read of which a row `limit.alert` has said so. For Attention; no route has it.
 */
export const listNearLimits = readOperation({
  name: 'listNearLimits',
  summary: 'Lists limits that are nearly used up.',
  takes: {},
  output: z.strictObject({ limits: z.array(usageShape) }),
  run: async ({ database }, _, { at }) => {
    const alerted = await readAlerted(database)
    const isWatched = (limit: LimitRecord): boolean =>
      isAlertable(limit) && (!limit.each || alertedStep(alerted, limit, at) >= NEAR)
    const watched = (await listLimits(database)).filter(isWatched)
    const read = await readUsage(database, watched, { at, most: MAX_NEAREST, mostEach: MAX_EACH_READ })
    const near = read.map(({ limit, meters }) => ({
      limit,
      meters: (meters ?? []).filter(({ used, amount }) => amount > 0 && used * 100 >= NEAR * amount),
    }))
    const found = near.filter(({ meters }) => meters.length > 0)
    return { value: { limits: nearestFirst(await namedUsages(database, found, at)) } }
  },
})

const limitUsageShape = z.strictObject({
  span: z.string().meta({ description: 'The beginning of its window; `ever`, `steady` or `now`.' }),
  resets_at: instant.nullable(),
  meters: z.array(meterShape),
})

export type LimitUsage = z.output<typeof limitUsageShape>

const spanOf = instant
  .exactOptional()
  .meta({ description: 'An instant in the window that is shown. Default: now.' })

export const showLimitUsage = readOperation({
  name: 'showLimitUsage',
  summary: 'Shows how much of the limit is used in a window, by the highest first.',
  takes: { params: idParams, query: z.object({ span: spanOf }) },
  output: limitUsageShape,
  reasons: ['not_found'],
  run: async (context, { params: { id }, query: { span: asked } }, { at: now }) => {
    const limit = await limitOf(context, id)
    // What has no window is as it is now.
    const at = asked === undefined || resetAt(limit, now) === null ? now : Date.parse(asked)
    const { span } = meterAt(limit, at)
    const read = await readMeters(context.database, { id, span, most: MAX_SHOWN })
    const meters = meterUsages(limit, read, at).map(meterView)
    return { value: { span, resets_at: resetText(limit, at), meters } }
  },
})
