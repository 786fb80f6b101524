import { OPERATIONS } from '../../admin/operations.ts'
import { AGENT, type Kind, OPERATOR, USER, WORKLOAD } from '../../admin/principals/kinds.ts'

/** The kinds of principals, each with the path of its pages and the operations on it. */
export const PAGES = {
  agents: { kind: AGENT, operations: OPERATIONS.agents },
  users: { kind: USER, operations: OPERATIONS.users },
  workloads: { kind: WORKLOAD, operations: OPERATIONS.workloads },
  operators: { kind: OPERATOR, operations: OPERATIONS.operators },
} as const

export type Plural = keyof typeof PAGES

/** What it takes to enroll one of a kind, and to say what it holds. */
export const demandsOf = ({ type }: Kind) =>
  type === 'operator'
    ? { enroll: 'admin.operators', grant: 'admin.operators' }
    : { enroll: 'admin.enroll', grant: 'admin.grant' }
