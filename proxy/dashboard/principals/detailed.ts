import type { Administered } from '../../../plugins/operators/operator.ts'
import { perform, type Result } from '../../admin/operation/operation.ts'
import type { PrincipalView } from '../../admin/principals/view.ts'
import type { Dashboard } from '../frame/dashboard.ts'
import { PAGES, type Plural } from './kinds.ts'

/** A principal as operations show it. */
export type Shown = Result<PrincipalView>['value']

/** A principal and its state, as its page shows it. */
export interface Detailed {
  readonly id: string
  readonly value: Shown
  readonly revision: number
}

/** Finds the principal of a page. Refuses with `not_found`. */
export async function detailOf(
  { context }: Dashboard,
  plural: Plural,
  id: string,
  facts: Administered,
): Promise<Detailed> {
  const { value, revision = 0 } = await perform(
    PAGES[plural].operations.get,
    context,
    { params: { id } },
    facts,
  )
  return { id, value, revision }
}
