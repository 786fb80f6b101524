import { promisify } from 'node:util'
import { deflate, inflate } from 'node:zlib'
import type { Selectable } from 'kysely'
import type { Database } from '../../database.ts'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf } from '../../support/statement.ts'

const [deflated, inflated] = [promisify(deflate), promisify(inflate)]

/** A state that a row has said (docs/ledger.md#state). */
export type StoredState = Omit<Selectable<DatabaseSchema['audit_states']>, 'state'>

const COLUMNS = ['tree', 'leaf', 'place', 'sha256', 'at', 'stream', 'seq'] as const

type StateDatabase = Pick<Database, 'kysely'>

/** Finds the states of a tree before a leaf, the newest first. */
export const statesUpTo = (
  { kysely }: StateDatabase,
  tree: number,
  leaf: number,
  most: number,
): Promise<readonly StoredState[]> =>
  kysely
    .selectFrom('audit_states')
    .select(COLUMNS)
    .where('tree', '=', tree)
    .where('leaf', '<=', leaf)
    .orderBy('leaf', 'desc')
    .limit(most)
    .execute()

/** Reads the text of a state. */
export async function textOfState({ kysely }: StateDatabase, { tree, leaf }: StoredState): Promise<string> {
  const { state } = await kysely
    .selectFrom('audit_states')
    .select('state')
    .where('tree', '=', tree)
    .where('leaf', '=', leaf)
    .executeTakeFirstOrThrow()
  return (await inflated(state)).toString()
}

export async function storeState(
  { kysely }: StateDatabase,
  stored: StoredState,
  text: string,
): Promise<LedgerStatement> {
  const state = await deflated(text)
  const insert = kysely.insertInto('audit_states').values({ ...stored, state })
  return { ...statementOf(insert.compile(), 1), beside: 'upkeep' }
}
