// No import of more: the writer's thread and the reader's load this file, and the query builder would double the
// time that a thread takes to start.
import { leafSql } from '../../../ledger/record/leaf-sql.ts'

/** The columns that are stored of each row. */
export const SQLITE_STORED_COLUMNS = [
  'seq',
  'recorded_at',
  'request_id',
  'principal_id',
  'action',
  'status',
  'row_hash',
  'leaf',
] as const

/** The columns that rows of before 0097 have in the leaf alone, and those since in place of a leaf. */
export const LEAF_COLUMNS = [
  ...['principal_type', 'tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt'],
  ...['detail', 'config_digest', 'version', 'prev_hash'],
]

// A leaf that is no JSON has no members: one such row must not keep the others from being read.
const memberOf = (name: string): string => `iif(json_valid(leaf), json_extract(leaf, '$.${name}'), null)`

/** The rows of before 0097 with all columns. */
export const SELECT_FROM_LEAVES = `select
  'main' as stream, ${SQLITE_STORED_COLUMNS.join(', ')},
  ${LEAF_COLUMNS.map((name) => `${memberOf(name)} as ${name}`).join(',\n  ')}
from audit_rows`

// Whatever is neither a text nor null makes another leaf than any row has: so nobody puts it there unseen.
const textOr = (column: string, sql: string): string =>
  `case typeof(${column}) when 'text' then ${sql} when 'null' then 'null' else '0' end`
const json = (column: string): string => textOr(column, `json_quote(${column})`)

const MADE = leafSql({
  ...{ json, hash: json, object: (column) => textOr(column, column) },
  stream: `'"main"'`,
})

/** The leaf of a row of the table. One that has a leaf as well as other columns has none that is right. */
export const LEAF_OF_ROW = `case when leaf = '' then ${MADE} when coalesce(${LEAF_COLUMNS.join(', ')}) is null then leaf else 'null' end`

/** The rows with all columns, as the view gives them. */
export const SELECT_ALL_COLUMNS = `select
  'main' as stream, ${SQLITE_STORED_COLUMNS.slice(0, -1).join(', ')}, ${LEAF_OF_ROW} as leaf,
  ${LEAF_COLUMNS.map((name) => `iif(leaf = '', ${name}, ${memberOf(name)}) as ${name}`).join(',\n  ')}
from audit_rows`
