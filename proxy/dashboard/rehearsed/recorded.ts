import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { administerOnRecord } from '../../admin/http/administer.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import type { RawInput } from '../../admin/operation/operation.ts'
import type { DashboardContext } from '../frame/dashboard.ts'

export type RehearsalChangesInput = RawInput<typeof OPERATIONS.rehearsals.create.takes>['body']['changes']

/** Records the rehearsal that the configuration demands, and returns its id; undefined if it demands none. */
export async function recordRequiredRehearsal(
  { context }: DashboardContext,
  changes: RehearsalChangesInput,
  facts: AdministrationFacts,
): Promise<string | undefined> {
  if (context.requireRehearsal === 'never' || changes.length === 0) return undefined
  const done = await administerOnRecord(OPERATIONS.rehearsals.create, context, { body: { changes } }, facts)
  return 'proposed' in done ? undefined : done.value.id
}
