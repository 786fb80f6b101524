/** The table of each type, the column of its id (spec §2.1), and that of its ledger name. */
export const PRINCIPAL_TABLES = {
  agent: { table: 'internal_agents', id: 'agent_id', ref: 'agent_id' },
  user: { table: 'local_user_principals', id: 'principal_id', ref: 'principal_ref' },
  workload: { table: 'local_workload_principals', id: 'principal_id', ref: 'principal_id' },
  operator: { table: 'local_operator_principals', id: 'principal_id', ref: 'principal_id' },
} as const
