import type { Database } from '../database.ts'
import { type Statement, statementOf } from '../statement.ts'

/** Ends every session that was signed in by the operator secret. May change no row. */
export function endSessionsBySecret({ kysely }: Database): Statement {
  return statementOf(kysely.deleteFrom('operator_sessions').where('via', '=', 'secret').compile())
}

/** Ends every session of an operator. May change no row. */
export function endSessionsOf({ kysely }: Database, principalId: string): Statement {
  return statementOf(kysely.deleteFrom('operator_sessions').where('principal_id', '=', principalId).compile())
}
