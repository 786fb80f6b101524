/** Where the principals of each type live, and what the column of their id is called (spec §2.1). */
export const TABLES = {
  agent: { table: 'internal_agents', id: 'agent_id' },
  user: { table: 'local_user_principals', id: 'principal_id' },
  workload: { table: 'local_workload_principals', id: 'principal_id' },
} as const
