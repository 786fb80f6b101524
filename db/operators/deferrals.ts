import type { Selectable } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema } from '../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

/** A card of Attention that somebody has put off. Timestamps are RFC 3339. */
export type AttentionDeferral = Selectable<DatabaseSchema['attention_deferrals']>

export const MAX_DEFERRALS = 1_000

/** Lists what is put off at an instant (ms since the epoch), what ends first first. */
export const deferralsAt = ({ kysely }: Database, at: number) =>
  kysely
    .selectFrom('attention_deferrals')
    .selectAll()
    .where('until', '>', timestamp(at))
    .orderBy('until')
    .limit(MAX_DEFERRALS)
    .execute()

interface NewDeferral {
  readonly card: string
  readonly title: string
  readonly reason: string
  readonly by: string
  /** ms since the epoch; not later than `at`: it is shown again. */
  readonly until: number
  readonly at: number
}

/** Puts a card off, in place of what was said of it before, and forgets those whose time is over. */
export function putDeferral(
  { kysely }: Database,
  { until, at, ...said }: NewDeferral,
): readonly LedgerStatement[] {
  const row = { ...said, until: timestamp(until), at: timestamp(at) }
  const { card: _, ...changed } = row
  return [
    kysely
      .insertInto('attention_deferrals')
      .values(row)
      .onConflict((conflict) => conflict.column('card').doUpdateSet(changed)),
    kysely.deleteFrom('attention_deferrals').where('until', '<=', timestamp(at)),
  ].map((query) => ({ ...statementOf(query.compile()), beside: 'upkeep' }))
}
