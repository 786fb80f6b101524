import { type Kysely, type RawBuilder, sql } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf } from '../../support/statement.ts'
import type { CountingDialect } from './dialect.ts'
import {
  type CostRow,
  MAX_DAY_MODELS,
  OTHER_MODELS,
  SPEND_DIMENSIONS,
  SPEND_SUMS,
  type SpendAnswer,
  type SpendCount,
  type SpendGroup,
  type SpendQuestion,
  type SpendSums,
  sumSpends,
} from './spend-counts.ts'

type SpendDatabase = Kysely<DatabaseSchema>

/** Sums the outcome rows after a place, up to another. */
export async function spendsOfRows(
  db: SpendDatabase,
  { place, ofDetail }: CountingDialect,
  { after, until }: { readonly after: number; readonly until: number },
): Promise<readonly SpendCount[]> {
  const column = sql.ref(place)
  // A call is of the day in which it was decided. Its decision may be archived by now, if all is counted again.
  const { rows } = await sql<CostRow>`
    select coalesce((select min(decision.recorded_at) from audit_rows as decision
        where decision.request_id = audit_log.request_id and decision.status = 'allowed'), recorded_at) as at,
      principal_id as principal, provider, model, tool,
      ${ofDetail('cost')} as cost, ${ofDetail('tokens')} as tokens
    from audit_log
    where ${column} > ${after} and ${column} <= ${until}
      and status in ('success', 'error', 'truncated', 'unknown') and detail like '%"cost":{%'`.execute(db)
  return sumSpends(rows.filter(({ cost }) => cost !== null))
}

const LIST = sql.join(SPEND_DIMENSIONS.map((name) => sql.ref(name)))
const SUMS = sql.join(SPEND_SUMS.map((name) => sql.ref(name)))

/** Adds sums to those that are kept. `members`: see {@link CountingDialect}. */
export function keepSpends(
  db: SpendDatabase,
  members: CountingDialect['members'],
  spends: readonly SpendCount[],
): LedgerStatement {
  const rows = spends.map((one) => [
    ...SPEND_DIMENSIONS.map((name) => one[name]),
    ...SPEND_SUMS.map((name) => one[name]),
  ])
  const given = sql.join([
    ...SPEND_DIMENSIONS.map((name, index) => sql`value ->> ${sql.lit(index)} as ${sql.ref(name)}`),
    ...SPEND_SUMS.map(
      (name, index) =>
        sql`cast(value ->> ${sql.lit(SPEND_DIMENSIONS.length + index)} as bigint) as ${sql.ref(name)}`,
    ),
  ])
  // Names that a caller makes up must not be rows without end.
  const model = sql`case when (select count(*) from spend_counts as known
      where known.day = given.day and known.principal = given.principal) < ${sql.lit(MAX_DAY_MODELS)}
    or exists (select 1 from spend_counts as known where ${sameKey('known', 'given')})
    then model else ${sql.lit(OTHER_MODELS)} end`
  const add = sql`
    insert into spend_counts (${LIST}, ${SUMS})
    select day, principal, provider, kept_model, tool, ${summed(SPEND_SUMS)}
    from (select day, principal, provider, ${model} as kept_model, tool, ${SUMS}
      from (select ${given} from ${members(JSON.stringify(rows))}) as given) as kept
    where true group by day, principal, provider, kept_model, tool
    on conflict (${LIST}) do update set ${sql.join(
      SPEND_SUMS.map(
        (name) => sql`${sql.ref(name)} = spend_counts.${sql.ref(name)} + excluded.${sql.ref(name)}`,
      ),
    )}`
  return { ...statementOf(add.compile(db)), beside: 'upkeep' }
}

const sameKey = (one: string, other: string): RawBuilder<unknown> =>
  sql.join(
    SPEND_DIMENSIONS.map((name) => sql`${sql.ref(`${one}.${name}`)} = ${sql.ref(`${other}.${name}`)}`),
    sql` and `,
  )

const summed = (names: readonly string[]): RawBuilder<unknown> =>
  sql.join(names.map((name) => sql`cast(sum(${sql.ref(name)}) as bigint)`))

const SPENDS_AT_ONCE = 1_024

/** The deletion of some of the spends of days before one; null if none is left. */
export async function removeSpends(
  db: SpendDatabase,
  before: string,
): Promise<readonly LedgerStatement[] | null> {
  const old = db.selectFrom('spend_counts').select('day').where('day', '<', before).limit(1)
  if (!(await old.executeTakeFirst())) return null
  const gone = sql`delete from spend_counts where (${LIST}) in
    (select ${LIST} from spend_counts where day < ${before} order by ${LIST} limit ${sql.lit(SPENDS_AT_ONCE)})`
  return [{ ...statementOf(gone.compile(db)), beside: 'upkeep' }]
}

/** Groups spends in one statement, so at one instant: the total is that of the groups. */
export async function groupSpends(
  db: SpendDatabase,
  { place }: CountingDialect,
  { by, from, to, principal, order, most, after }: SpendQuestion,
): Promise<SpendAnswer> {
  const keys = sql.join(by.map((name) => sql.ref(name)))
  const sums = sql.join(
    SPEND_SUMS.map((name) => sql`cast(coalesce(sum(${sql.ref(name)}), 0) as bigint) as ${sql.ref(name)}`),
  )
  const own = principal === undefined ? sql`` : sql`and principal = ${principal}`
  const lacking = order === 'unpriced' ? sql`and unpriced_calls > 0` : sql``
  const later = after === undefined ? sql`` : sql`where (${keys}) > (${sql.join([...after])})`
  const first = {
    key: keys,
    cost: sql`microusd desc, calls desc, ${keys}`,
    unpriced: sql`unpriced_calls desc, ${keys}`,
  }[order]
  const { rows } = await sql<SpendGroup & { readonly part: number; readonly behind: number }>`
    with found as (select ${keys}, ${sums} from spend_counts
      where day >= ${from} and day <= ${to} ${own} ${lacking} group by ${keys})
    select 0 as part, 0 as behind, page.* from
      (select * from found ${later} order by ${first} limit ${sql.lit(most + 1)}) as page
    union all
    select 1, (select coalesce(max(${sql.ref(place)}), 0) from audit_rows) - (select place from row_counts_place),
      ${sql.join(by.map(() => sql`''`))}, ${sums} from found
    order by part, ${first}`.execute(db)
  const groups = rows.flatMap(({ part, behind: _, ...group }) => (part === 0 ? [group] : []))
  const all = rows.at(-1)
  return {
    groups: groups.slice(0, most),
    more: groups.length > most,
    // Proven by the second half of the union, which has one row.
    total: Object.fromEntries(SPEND_SUMS.map((name) => [name, all?.[name] ?? 0])) as SpendSums,
    uncounted: Math.max(0, all?.behind ?? 0),
  }
}
