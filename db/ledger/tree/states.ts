import { promisify } from 'node:util'
import { deflate, inflate } from 'node:zlib'
import type { Kysely, Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf } from '../../support/statement.ts'

const [deflated, inflated] = [promisify(deflate), promisify(inflate)]

/** A state that a row has said (docs/ledger.md#state). */
export type StoredState = Omit<Selectable<DatabaseSchema['audit_states']>, 'state'>

const COLUMNS = ['tree', 'leaf', 'place', 'sha256', 'at', 'stream', 'seq'] as const

/** A database, or a part of one. */
interface StateDatabase {
  readonly kysely: Kysely<DatabaseSchema>
}

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

/** Makes of the text of a state what is stored of it. */
export const stateBytes = (text: string): Promise<Buffer> => deflated(text)

/** Reads the text of a state in what is stored of it. */
export const stateTextIn = async (stored: Uint8Array): Promise<string> => (await inflated(stored)).toString()

/** Reads what is stored of a state. */
export async function bytesOfState(
  { kysely }: StateDatabase,
  { tree, leaf }: StoredState,
): Promise<Uint8Array> {
  const { state } = await kysely
    .selectFrom('audit_states')
    .select('state')
    .where('tree', '=', tree)
    .where('leaf', '=', leaf)
    .executeTakeFirstOrThrow()
  return state
}

/** Reads the text of a state: with many principals it takes longer than a turn of a loop may. */
export const textOfState = async (database: StateDatabase, stored: StoredState): Promise<string> =>
  stateTextIn(await bytesOfState(database, stored))

export function storeState({ kysely }: StateDatabase, stored: StoredState, state: Buffer): LedgerStatement {
  const insert = kysely.insertInto('audit_states').values({ ...stored, state })
  return { ...statementOf(insert.compile(), 1), beside: 'upkeep' }
}
