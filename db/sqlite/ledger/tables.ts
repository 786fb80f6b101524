import type SQLite from 'better-sqlite3'
import type { AuthorityTables } from '../../ledger/authority/compare.ts'
import { AUTHORITY_TABLES, authorityTablesOf, firstMeterSpan, type TableRow } from '../../stored-authority.ts'

/** Reads the tables that decisions rest on. Call it in the transaction that reads the last rows. */
export function readAuthorityTables(db: SQLite.Database, at: number): AuthorityTables {
  const since = firstMeterSpan(at)
  const meters = db.prepare<[string], TableRow>(`select * from ${METERS} where span >= ?`).all(since)
  return authorityTablesOf((table) => db.prepare<[], TableRow>(`select * from ${table}`).all(), meters, since)
}

const METERS = 'limit_meters'

const OTHER_TABLES = [
  'audit_trees',
  'audit_tiles',
  'audit_checkpoints',
  'audit_cosignatures',
  'audit_keys',
  'audit_states',
  'audit_segments',
  'kysely_migration',
]

/** Names the views that stand in the place of tables that verifying reads. */
export function viewsInPlaceOfTables(db: SQLite.Database): readonly string[] {
  const views = db
    .prepare<[], string>("select lower(name) from sqlite_schema where type = 'view'")
    .pluck()
    .all()
  const read = new Set([...OTHER_TABLES, ...AUTHORITY_TABLES, METERS])
  return views.filter((name) => read.has(name)).toSorted()
}
