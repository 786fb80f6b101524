import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import type { PrincipalView } from '../../admin/principals/view.ts'
import type { DashboardContext } from '../frame/dashboard.ts'
import { PRINCIPAL_PAGES, type PrincipalPlural } from './kinds.ts'

/** A principal as operations show it. */
export type ReadonlyPrincipalView = OperationResult<PrincipalView>['value']

export interface PrincipalDetail {
  readonly id: string
  readonly value: ReadonlyPrincipalView
  readonly revision: number
}

/** Finds the principal of a page. Refuses with `not_found`. */
export async function readPrincipalDetail(
  { context }: DashboardContext,
  plural: PrincipalPlural,
  id: string,
  facts: AdministrationFacts,
): Promise<PrincipalDetail> {
  const { value, revision = 0 } = await perform(
    PRINCIPAL_PAGES[plural].operations.get,
    context,
    { params: { id } },
    facts,
  )
  return { id, value, revision }
}
