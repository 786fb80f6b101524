import type { Database } from '../../database.ts'
import type { RowAssertion } from '../../support/statement.ts'
import { OUTCOME_STATUSES } from './outcomes.ts'

export function callIsOpen({ kysely }: Pick<Database, 'kysely'>, requestId: string): RowAssertion {
  const outcome = kysely
    .selectFrom('audit_log as outcome')
    .select('outcome.seq')
    .where('outcome.request_id', '=', requestId)
    .where('outcome.status', 'in', [...OUTCOME_STATUSES])
  const { sql, parameters } = kysely
    .selectFrom('audit_log as decision')
    .select('decision.seq')
    .where('decision.request_id', '=', requestId)
    .where('decision.status', '=', 'allowed')
    .where((is) => is.not(is.exists(outcome)))
    .compile()
  // Proven by the lines above: texts alone.
  return { sql, parameters: parameters as readonly string[] }
}
