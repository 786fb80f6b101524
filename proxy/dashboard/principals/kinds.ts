import { OPERATIONS } from '../../admin/http/operations.ts'
import { AGENT, OPERATOR, USER, WORKLOAD } from '../../admin/operation/kinds.ts'

/** The kinds of principals, each with the path of its pages and the operations on it. */
export const PRINCIPAL_PAGES = {
  agents: { kind: AGENT, operations: OPERATIONS.agents },
  users: { kind: USER, operations: OPERATIONS.users },
  workloads: { kind: WORKLOAD, operations: OPERATIONS.workloads },
  operators: { kind: OPERATOR, operations: OPERATIONS.operators },
} as const

export type PrincipalPlural = keyof typeof PRINCIPAL_PAGES

/** The kinds that call models and tools. */
export type CallerPlural = Exclude<PrincipalPlural, 'operators'>
