import { sql } from 'kysely'
import type { Database } from '../database.ts'
import { type LedgerStatement, statementOf } from '../support/statement.ts'

/**
 * Returns whether `<one>.<tool>` could mean a tool of the other as well: one is the other's beginning up to a
 * dot.
 */
export const namesCollide = (one: string, other: string): boolean =>
  one !== other && (one.startsWith(`${other}.`) || other.startsWith(`${one}.`))

/**
 * Fails the unit that gives a resource its name if the name collides: two operators at once must not make
 * what neither of them could make alone. Stands after the statement that gives the name; writes nothing.
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
