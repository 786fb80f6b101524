import type { Database } from '../../../db/database.ts'
import { type AuditRow, listRows } from '../../../db/ledger/read/read.ts'

/** Every row of the ledger, as the audit API lists them, oldest first. */
export async function listedRows({ kysely }: Pick<Database, 'kysely'>): Promise<readonly AuditRow[]> {
  const rows: AuditRow[] = []
  let cursor: string | null = null
  do {
    const page = await listRows(kysely, { order: 'asc', limit: 1000, ...(cursor && { cursor }) })
    rows.push(...page.rows)
    cursor = page.next_cursor
  } while (cursor)
  return rows
}
