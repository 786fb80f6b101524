import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { RawInput } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'

/** Changes as a caller writes them. */
export type RehearsalChangesInput = RawInput<typeof OPERATIONS.rehearsals.create.takes>['body']['changes']

/**
 * Records the rehearsal of changes if the configuration demands one, and returns its id: its result was shown
 * before. Undefined if none is demanded.
 */
export async function recordRequiredRehearsal(
  { context }: DashboardContext,
  changes: RehearsalChangesInput,
  facts: AdministrationFacts,
): Promise<string | undefined> {
  if (context.requireRehearsal === 'never' || changes.length === 0) return undefined
  const done = await administerOnRecord(OPERATIONS.rehearsals.create, context, { body: { changes } }, facts)
  return 'proposed' in done ? undefined : done.value.id
}
