// No import: the writer's thread and the reader's load this file, and the query builder would double the time
// that a thread takes to start.

/** The columns that are stored. Every other one is read from the leaf. */
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

/** The columns that are read from the leaf. */
export const LEAF_COLUMNS = [
  ...['principal_type', 'tool', 'model', 'provider', 'cert_thumbprint', 'dpop_jkt'],
  ...['detail', 'config_digest', 'version', 'prev_hash'],
]

// A leaf that is no JSON has no members: one such row must not keep the others from being read.
const memberOf = (name: string): string => `iif(json_valid(leaf), json_extract(leaf, '$.${name}'), null)`

/** The rows with all columns, as the view gives them. */
export const SELECT_ALL_COLUMNS = `select
  'main' as stream, ${SQLITE_STORED_COLUMNS.join(', ')},
  ${LEAF_COLUMNS.map((name) => `${memberOf(name)} as ${name}`).join(',\n  ')}
from audit_rows`
