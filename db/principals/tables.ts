/** The table of each type of principal, and the column of its id (spec §2.1). */
export const TABLES = {
  agent: { table: 'internal_agents', id: 'agent_id' },
  user: { table: 'local_user_principals', id: 'principal_id' },
  workload: { table: 'local_workload_principals', id: 'principal_id' },
} as const
