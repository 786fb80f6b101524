import type SQLite from 'better-sqlite3'

/** The definitions of the audit tables in SQLite's schema, by the name of the object. */
export type AuditSchema = Readonly<Record<string, string>>

/**
 * Names objects of the audit tables that are missing, changed or too many; null if all is well
 * (docs/threats.md#t11).
 */
export function sqliteSchemaProblem(connection: SQLite.Database, expected: AuditSchema): string | null {
  const found = auditSchema(connection)
  const names = [...new Set([...Object.keys(expected), ...Object.keys(found)])].sort()
  const odd = names.filter((name) => expected[name] !== found[name])
  if (odd.length === 0) return null
  return `the schema of the audit tables is not as this version makes it: ${odd.map((name) => verdict(name, expected, found)).join(', ')}`
}

function verdict(name: string, expected: AuditSchema, found: AuditSchema): string {
  if (!Object.hasOwn(found, name)) return `${name} is missing`
  return Object.hasOwn(expected, name) ? `${name} was changed` : `${name} was added`
}

/**
 * Reads the audit schema by table as well as by name: a trigger may have any name, and spell the table in any
 * case.
 */
export function auditSchema(connection: SQLite.Database): AuditSchema {
  const objects = connection
    .prepare<[], { name: string; definition: string }>(
      `select name, type || ' on ' || tbl_name || ': ' || coalesce(sql, '') as definition from sqlite_schema
       where lower(name) glob 'audit_*' or lower(tbl_name) glob 'audit_*'`,
    )
    .all()
  return Object.fromEntries(objects.map(({ name, definition }) => [name, definition]))
}
