import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

/** True if one name is the other's beginning up to a dot, so that `<one>.<tool>` is ambiguous. */
export const namesCollide = (one: string, other: string): boolean =>
  one !== other && (one.startsWith(`${other}.`) || other.startsWith(`${one}.`))

/**
 * Fails the unit if a name collides, also with one made at the same time. Stands after the statement that
 * gives the name; writes nothing.
 */
export function rejectNameCollision({ kysely }: Database, name: string): LedgerStatement {
  const dotted = `${name}.`
  const query = kysely
    .updateTable('mcp_resources')
    .set((row) => ({ name: row.ref('name') }))
    .where((row) =>
      row.or([
        sql<boolean>`substr(name, 1, length(${dotted})) = ${dotted}`,
        // Not `like`: a name may hold an underscore.
        sql<boolean>`substr(${name}, 1, length(name) + 1) = name || '.'`,
      ]),
    )
  return statementOf(query.compile(), 0)
}
