import type { AdministrationFacts } from '../../../plugins/operators/operator.ts'
import { OPERATIONS } from '../../admin/http/operations.ts'
import { AGENT, OPERATOR, USER, WORKLOAD } from '../../admin/operation/kinds.ts'
import { type OperationResult, perform } from '../../admin/operation/operation.ts'
import type { PrincipalView } from '../../admin/principals/view.ts'
import type { DashboardContext } from '../frame/dashboard.ts'

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
  const { get } = PRINCIPAL_PAGES[plural].operations
  const { value, revision = 0 } = await perform(get, context, { params: { id } }, facts)
  return { id, value, revision }
}

const LABELS: Readonly<Record<string, string>> = {
  agent_name: 'Name',
  user_name: 'Name',
  workload_name: 'Name',
  operator_name: 'Name',
  display_name: 'Shown as',
  capabilities: 'The set',
}

/** Calls a field of a refusal by the name that its page has for it; of a set, the token that is wrong. */
export const fieldLabels =
  (typed: readonly string[]) =>
  (field: string): string => {
    const at = /^capabilities\[(\d+)\]$/.exec(field)?.[1]
    return at === undefined ? (LABELS[field] ?? field) : (typed[Number(at)] ?? field)
  }

/** Labels as searches and forms have them. */
export const labelTexts = (labels: Readonly<Record<string, string>>): readonly string[] =>
  Object.entries(labels).map(([key, value]) => `${key}=${value}`)

/** The kinds of principals, each with the path of its pages and the operations on it. */
export const PRINCIPAL_PAGES = {
  agents: { kind: AGENT, operations: OPERATIONS.agents },
  users: { kind: USER, operations: OPERATIONS.users },
  workloads: { kind: WORKLOAD, operations: OPERATIONS.workloads },
  operators: { kind: OPERATOR, operations: OPERATIONS.operators },
} as const

export type PrincipalPlural = keyof typeof PRINCIPAL_PAGES

export type CallerPlural = Exclude<PrincipalPlural, 'operators'>
