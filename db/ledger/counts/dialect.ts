import { type RawBuilder, sql } from 'kysely'

/** The SQL in which the engines differ when rows are counted. */
export interface CountingDialect {
  /** The column of `audit_rows` that has a row's place. */
  readonly place: 'seq' | 'place'
  /** A table with one column `value`: the members of a JSON array that is a parameter. */
  readonly members: (json: string) => RawBuilder<unknown>
  /** The JSON text of a member of a row's `detail`; null if it has none. */
  readonly ofDetail: (member: string) => RawBuilder<string | null>
}

export const SINGLE_STREAM_DIALECT: CountingDialect = {
  place: 'seq',
  members: (json) => sql`json_each(${json})`,
  ofDetail: (member) => sql`iif(json_valid(detail), json_extract(detail, ${sql.lit(`$.${member}`)}), null)`,
}
