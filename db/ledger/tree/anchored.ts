import type { Kysely, Selectable } from 'kysely'
import type { Schema } from '../../schema.ts'
import { type Statement, statementOf, timestamp } from '../../support/statement.ts'

type Db = Kysely<Schema>

/** How far an anchor is. */
export type AnchorState = Selectable<Schema['audit_anchors']>

/** The anchors of a tree that a checkpoint was ever tried at, by name. */
export const anchorStates = (db: Db, tree: number): Promise<readonly AnchorState[]> =>
  db.selectFrom('audit_anchors').selectAll().where('tree', '=', tree).orderBy('anchor').execute()

interface Kept {
  readonly tree: number
  readonly anchor: string
  readonly size: number
  /** What the anchor says of it; null where it says nothing. */
  readonly proof: string | null
  readonly at: number
}

const upkeep = { beside: 'upkeep' } as const

/** An anchor keeps a checkpoint. */
export function checkpointKept(db: Db, { tree, anchor, size, proof, at }: Kept): readonly Statement[] {
  const row = { tree, anchor, size, at: timestamp(at), error: null, error_at: null }
  const state = db
    .insertInto('audit_anchors')
    .values(row)
    .onConflict((known) =>
      known.columns(['tree', 'anchor']).doUpdateSet({ size, at: row.at, error: null, error_at: null }),
    )
  const said = db
    .insertInto('audit_cosignatures')
    .values({ tree, size, anchor, proof: proof ?? '', at: row.at })
    .onConflict((known) => known.columns(['tree', 'size', 'anchor']).doNothing())
  const statements = proof === null ? [state] : [state, said]
  return statements.map((query) => ({ ...statementOf(query.compile()), ...upkeep }))
}

/** An anchor could not be reached, or refused. */
export function anchorFailed(
  db: Db,
  { tree, anchor, error, at }: Omit<Kept, 'size' | 'proof'> & { readonly error: string },
): Statement {
  const errorAt = timestamp(at)
  const query = db
    .insertInto('audit_anchors')
    .values({ tree, anchor, size: 0, at: null, error, error_at: errorAt })
    .onConflict((known) => known.columns(['tree', 'anchor']).doUpdateSet({ error, error_at: errorAt }))
  return { ...statementOf(query.compile(), 1), ...upkeep }
}

/** When the oldest checkpoint was signed that an anchor lacks; null where it lacks none. ms since the epoch. */
export async function lackingSince(db: Db, tree: number, size: number): Promise<number | null> {
  const next = await db
    .selectFrom('audit_checkpoints')
    .select('signed_at')
    .where('tree', '=', tree)
    .where('size', '>', size)
    .orderBy('size')
    .limit(1)
    .executeTakeFirst()
  return next ? Date.parse(next.signed_at) : null
}
