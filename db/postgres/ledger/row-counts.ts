import { type Kysely, sql } from 'kysely'
import type { RowCounts } from '../../ledger/counts/row-counts.ts'
import {
  type CountingDialect,
  countedPlace,
  countPortion,
  countWithin,
  keepCounts,
  lastPlace,
} from '../../ledger/counts/store.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { SettledPlace } from './tree-rows.ts'

const DIALECT: CountingDialect = {
  place: 'place',
  members: (json) => sql`json_array_elements(${json}::json) as members(value)`,
}

/** The rows of all streams, by their places: none is counted while one may still come in before it. */
export function postgresRowCounts(db: Kysely<DatabaseSchema>): RowCounts {
  const settled = new SettledPlace(db)
  return {
    counted: () => countedPlace(db),
    portion: async (after, most) => {
      const until = await settled.place(after)
      return until > after ? countPortion(db, DIALECT, { after, until, most }) : { counts: [], place: after }
    },
    keep: (from, portion) => keepCounts(db, DIALECT, from, portion),
    within: (window) => countWithin(db, DIALECT, window),
    last: () => lastPlace(db, DIALECT),
  }
}
