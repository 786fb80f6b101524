import { type Selectable, sql } from 'kysely'
import type { Database } from '../database.ts'
import type { DatabaseSchema, ProposalStatus } from '../schema.ts'
import { type ListCursor, type ListPage, listPageOf } from '../support/cursor.ts'
import { type LedgerStatement, statementOf, timestamp } from '../support/statement.ts'

export interface Proposal extends Omit<Selectable<DatabaseSchema['proposals']>, 'capabilities'> {
  /** Demanded of proposer and confirmer. */
  readonly capabilities: readonly string[]
}

type ProposalRow = Selectable<DatabaseSchema['proposals']>

// Proven by insertProposal, which alone writes this column.
const proposalOf = (row: ProposalRow): Proposal => ({
  ...row,
  capabilities: JSON.parse(row.capabilities) as readonly string[],
})

export async function findProposal({ kysely }: Database, id: string): Promise<Proposal | undefined> {
  const row = await kysely
    .selectFrom('proposals')
    .selectAll()
    .where('proposal_id', '=', id)
    .executeTakeFirst()
  return row && proposalOf(row)
}

interface ProposalQuery {
  readonly status?: ProposalStatus | undefined
  readonly limit: number
  readonly cursor?: ListCursor | undefined
}

export async function listProposals(
  { kysely }: Database,
  { status, limit, cursor }: ProposalQuery,
): Promise<ListPage<Proposal>> {
  let query = kysely.selectFrom('proposals').selectAll()
  if (status !== undefined) query = query.where('status', '=', status)
  if (cursor)
    query = query.where(sql<boolean>`(created_at, proposal_id) < (${cursor.createdAt}, ${cursor.id})`)
  const rows = await query
    .orderBy('created_at', 'desc')
    .orderBy('proposal_id', 'desc')
    .limit(limit + 1)
    .execute()
  return listPageOf(rows.map(proposalOf), limit, ({ proposal_id: id }) => id)
}

/** The open proposals that are past their end, oldest first. `at`: ms since the epoch. */
export async function overdueProposals(
  { kysely }: Database,
  at: number,
  limit: number,
): Promise<readonly Proposal[]> {
  const rows = await kysely
    .selectFrom('proposals')
    .selectAll()
    .where('status', '=', 'open')
    .where('expires_at', '<=', timestamp(at))
    .orderBy('expires_at')
    .limit(limit)
    .execute()
  return rows.map(proposalOf)
}

export async function countOpenProposals(
  { kysely }: Database,
  by: string,
): Promise<{ readonly all: number; readonly own: number }> {
  const open = kysely
    .selectFrom('proposals')
    .select(({ fn }) => fn.countAll().as('total'))
    .where('status', '=', 'open')
  const [all, own] = await Promise.all([
    open.executeTakeFirstOrThrow(),
    open.where('proposed_by', '=', by).executeTakeFirstOrThrow(),
  ])
  return { all: Number(all.total), own: Number(own.total) }
}

export function insertProposal({ kysely }: Database, proposal: Proposal): LedgerStatement {
  const row = { ...proposal, capabilities: JSON.stringify(proposal.capabilities) }
  return statementOf(kysely.insertInto('proposals').values(row).compile(), 1)
}

interface ProposalDecision {
  readonly id: string
  readonly status: Exclude<ProposalStatus, 'open'>
  /** Null: nobody, its time was over. */
  readonly by: string | null
  /** ms since the epoch. */
  readonly at: number
}

/** Ends an open proposal; another one changes no row. Its input, which may name a person, is forgotten. */
export function decideProposal(
  { kysely }: Database,
  { id, status, by, at }: ProposalDecision,
): LedgerStatement {
  const query = kysely
    .updateTable('proposals')
    .set({ status, decided_by: by, decided_at: timestamp(at), input: '{}' })
    .where('proposal_id', '=', id)
    .where('status', '=', 'open')
  return statementOf(query.compile(), 1)
}
