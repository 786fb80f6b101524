import type { Database } from '../../../db/database.ts'
import {
  type AccountEnd,
  type AccountHolder,
  insertRevocation,
  listAccounts,
  removeAccount,
  type StoredAccount,
  upstreamAccountOf,
} from '../../../db/mcp/accounts.ts'
import { portionsOf } from '../../../db/support/pages.ts'
import type { LedgerStatement } from '../../../db/support/statement.ts'
import type { AuditNote } from '../../../plugins/audit/entries.ts'
import type { SubjectKeys } from '../../../plugins/pin/subject-keys.ts'
import { eventLoopTurn } from '../../../plugins/turns.ts'
import { accountEndedNote } from './rows.ts'
import { AccountVault } from './vault.ts'

/** The statements and notes that end accounts, in the unit of what ends them. */
export interface AccountEnding {
  readonly statements: readonly LedgerStatement[]
  readonly notes: readonly AuditNote[]
}

/** The means of an operation of administration. */
export interface EndingContext {
  readonly database: Database
  readonly subjectKeys: Pick<SubjectKeys, 'find' | 'derived'>
}

/** The accounts whose tokens are opened before others have their turn. */
const AT_ONCE = 50

/**
 * Ends all accounts of a principal, at a resource, or of one at the other. Tokens that open are queued to be
 * revoked at their issuer; those that do not are forgotten. `at`: ms since the epoch.
 */
export async function endingOf(
  context: EndingContext,
  of: { readonly principal?: Pick<AccountHolder, 'id' | 'type'>; readonly resourceId?: string },
  why: AccountEnd,
  at: number,
): Promise<AccountEnding> {
  const rows = await listAccounts(context.database, of)
  return endingOfRows(context, rows, why, at)
}

/** Ends accounts that were read: each as it is, whatever its revision. */
export async function endingOfRows(
  { database, subjectKeys }: EndingContext,
  rows: readonly StoredAccount[],
  why: AccountEnd,
  at: number,
): Promise<AccountEnding> {
  const vault = new AccountVault(subjectKeys)
  const statements: LedgerStatement[] = []
  for (const some of portionsOf(rows, AT_ONCE)) {
    for (const row of some) statements.push(...(await endingStatements(database, vault, row, at)))
    await eventLoopTurn()
  }
  return { statements, notes: rows.map((row) => accountEndedNote(upstreamAccountOf(row), why)) }
}

/** Removes an account, of that revision alone if one is given, and queues its tokens. */
export async function endingStatements(
  database: Database,
  vault: AccountVault,
  row: StoredAccount,
  at: number,
  revision?: number,
): Promise<readonly LedgerStatement[]> {
  const held = await vault.open(row)
  return [
    removeAccount(database, row.account_id, revision),
    ...(held ? [insertRevocation(database, vault.revocation(row, held, at))] : []),
  ]
}
