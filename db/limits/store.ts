import { randomBytes } from 'node:crypto'
import type { Selectable } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'
import type { CallLimit, LimitOverride, LimitTerms } from './limit.ts'

/** The limits that there may be. */
export const MAX_LIMITS = 1_000

/** A limit with its author and times. */
export interface LimitRecord extends CallLimit {
  readonly created_at: string
  readonly updated_at: string
  readonly created_by: string | null
  readonly changed_by: string | null
}

export const newLimitId = (): string => `lim_${randomBytes(8).toString('hex')}`

function recordOf(row: Selectable<DatabaseSchema['limits']>): LimitRecord {
  const { limit_id: id, name, terms, override, revision, alerted: _, ...times } = row
  return {
    ...times,
    ...{ id, name, revision },
    // Proven by insertLimit and updateLimit, which alone write both.
    ...(JSON.parse(terms) as LimitTerms),
    override: override === null ? null : (JSON.parse(override) as LimitOverride),
  }
}

/** Reads all limits, the oldest first. */
export async function listLimits({ kysely }: Pick<Database, 'kysely'>): Promise<readonly LimitRecord[]> {
  const rows = await kysely
    .selectFrom('limits')
    .selectAll()
    .orderBy('created_at')
    .orderBy('limit_id')
    .limit(MAX_LIMITS)
    .execute()
  return rows.map(recordOf)
}

export async function findLimit(
  { kysely }: Pick<Database, 'kysely'>,
  id: string,
): Promise<LimitRecord | null> {
  const row = await kysely.selectFrom('limits').selectAll().where('limit_id', '=', id).executeTakeFirst()
  return row ? recordOf(row) : null
}

/** Reads the number of the present state of all limits and stops. */
export async function rulesRevision({ kysely }: Pick<Database, 'kysely'>): Promise<number> {
  const row = await kysely.selectFrom('limit_set').select('revision').executeTakeFirst()
  return row?.revision ?? 0
}

/** Numbers the state that a change of limits or stops makes. It goes into the unit of each. */
export const nextRules = ({ kysely }: Pick<Database, 'kysely'>): LedgerStatement =>
  statementOf(
    kysely
      .updateTable('limit_set')
      .set((row) => ({ revision: row('revision', '+', 1) }))
      .compile(),
    1,
  )

interface LimitChange {
  readonly id: string
  /** ms since the epoch. */
  readonly at: number
  readonly by: string
}

/** Does NOT count how many there are. */
export function insertLimit(
  database: Pick<Database, 'kysely'>,
  { id, name, terms, at, by }: LimitChange & { readonly name: string; readonly terms: LimitTerms },
): readonly LedgerStatement[] {
  const query = database.kysely.insertInto('limits').values({
    ...{ limit_id: id, name, terms: JSON.stringify(terms) },
    ...{ created_at: timestamp(at), updated_at: timestamp(at), created_by: by, changed_by: by },
  })
  return [statementOf(query.compile(), 1), nextRules(database)]
}

/** Changes a limit, if it is as it was read. */
export function updateLimit(
  database: Pick<Database, 'kysely'>,
  {
    id,
    name,
    terms,
    override,
    revision,
    at,
    by,
  }: LimitChange &
    Pick<CallLimit, 'name' | 'revision' | 'override'> & {
      readonly terms: LimitTerms
    },
): readonly LedgerStatement[] {
  const query = database.kysely
    .updateTable('limits')
    .set((row) => ({
      ...{ name, terms: JSON.stringify(terms) },
      override: override === null ? null : JSON.stringify(override),
      revision: row('revision', '+', 1),
      ...{ updated_at: timestamp(at), changed_by: by },
    }))
    .where('limit_id', '=', id)
    .where('revision', '=', revision)
  return [statementOf(query.compile(), 1), nextRules(database)]
}

/** Removes a limit, if it is as it was read. Its meters stay until they are pruned: rows name them. */
export function deleteLimit(
  database: Pick<Database, 'kysely'>,
  { id, revision }: Pick<CallLimit, 'id' | 'revision'>,
): readonly LedgerStatement[] {
  const query = database.kysely
    .deleteFrom('limits')
    .where('limit_id', '=', id)
    .where('revision', '=', revision)
  return [statementOf(query.compile(), 1), nextRules(database)]
}

/** Reads the meters in these spans that all callers of a present limit share. */
export const readSharedMeters = ({ kysely }: Pick<Database, 'kysely'>, spans: readonly string[]) =>
  kysely
    .selectFrom('limits')
    .innerJoin('limit_meters as meter', (join) =>
      join.onRef('meter.limit_id', '=', 'limits.limit_id').on('meter.who', '=', ''),
    )
    .select(['limits.limit_id', 'meter.span', 'meter.n', 'meter.reserved', 'meter.spent', 'meter.tat'])
    .where('meter.span', 'in', spans)
    .execute()

/** Reads the meters of limits in spans that are of an owner, such as one principal or the empty text. */
export const readMetersOf = (
  { kysely }: Pick<Database, 'kysely'>,
  {
    ids,
    owners,
    spans,
  }: {
    readonly ids: readonly string[]
    readonly owners: readonly string[]
    readonly spans: readonly string[]
  },
) =>
  kysely
    .selectFrom('limit_meters')
    .select(['limit_id', 'who', 'span', 'n', 'reserved', 'spent', 'tat'])
    .where('limit_id', 'in', ids)
    .where('who', 'in', owners)
    .where('span', 'in', spans)
    .execute()

/** Reads meters of a limit in a span, the highest first. */
export const readMeters = (
  { kysely }: Pick<Database, 'kysely'>,
  { id, span, most }: { readonly id: string; readonly span: string; readonly most: number },
) =>
  kysely
    .selectFrom('limit_meters')
    .select(['who', 'n', 'reserved', 'spent', 'tat'])
    .where('limit_id', '=', id)
    .where('span', '=', span)
    .orderBy((row) => row('spent', '+', row.ref('reserved')), 'desc')
    .orderBy('who')
    .limit(most)
    .execute()

/** The time for which the meters of windows are kept that are over. Days. */
const METER_DAYS = 400
const DAY_MS = 86_400_000
/** The meters that one statement forgets: others' writes wait for it. */
const MAX_PRUNED = 5_000

/** Tells whether there is a meter of a window that was over long ago. `at`: ms since the epoch. */
export async function hasOldMeters({ kysely }: Pick<Database, 'kysely'>, at: number): Promise<boolean> {
  const one = kysely.selectFrom('limit_meters').select('n').where('span', '<', oldest(at)).limit(1)
  return (await one.executeTakeFirst()) !== undefined
}

/** Forgets some meters of windows that were over long ago. What they counted stays in the rows. */
export function pruneMeters(
  { kysely }: Pick<Database, 'kysely'>,
  at: number,
  most = MAX_PRUNED,
): LedgerStatement {
  const old = kysely
    .selectFrom('limit_meters')
    .select(['limit_id', 'who', 'span'])
    .where('span', '<', oldest(at))
    .limit(most)
  const query = kysely
    .deleteFrom('limit_meters')
    .where((row) =>
      row(row.refTuple('limit_id', 'who', 'span'), 'in', old.$asTuple('limit_id', 'who', 'span')),
    )
  return { ...statementOf(query.compile()), beside: 'upkeep' }
}

/** Spans that are no instants sort after all that are. */
const oldest = (at: number): string => timestamp(at - METER_DAYS * DAY_MS)
