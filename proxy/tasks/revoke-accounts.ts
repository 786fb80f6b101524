import type { Database } from '../../db/database.ts'
import type { PeriodicTask } from './rounds.ts'

interface RevokeDependencies {
  readonly database: Pick<Database, 'leads'>
  readonly revokeDue: () => Promise<void>
}

const REVOKE_TASK = 'revoke-upstream-accounts'

/** Has issuers revoke the tokens of accounts at MCP servers that have ended. */
export const revokeAccounts = ({ database, revokeDue }: RevokeDependencies): PeriodicTask => ({
  name: REVOKE_TASK,
  everyMs: 10_000,
  run: async () => {
    if (database.leads(REVOKE_TASK)) await revokeDue()
  },
})
