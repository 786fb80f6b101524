import type { Kysely, Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../../support/statement.ts'

type AnchorsDatabase = Kysely<DatabaseSchema>

export type AnchorState = Selectable<DatabaseSchema['audit_anchors']>

/** The anchors of a tree that a checkpoint was ever tried at, by name. */
export const anchorStates = (db: AnchorsDatabase, tree: number): Promise<readonly AnchorState[]> =>
  db.selectFrom('audit_anchors').selectAll().where('tree', '=', tree).orderBy('anchor').execute()

interface AnchoredCheckpoint {
  readonly tree: number
  readonly anchor: string
  readonly size: number
  readonly proof: string | null
  readonly at: number
}

const upkeep = { beside: 'upkeep' } as const

export function recordAnchoring(
  db: AnchorsDatabase,
  { tree, anchor, size, proof, at }: AnchoredCheckpoint,
): readonly LedgerStatement[] {
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

export function recordAnchorFailure(
  db: AnchorsDatabase,
  { tree, anchor, error, at }: Omit<AnchoredCheckpoint, 'size' | 'proof'> & { readonly error: string },
): LedgerStatement {
  const errorAt = timestamp(at)
  const query = db
    .insertInto('audit_anchors')
    .values({ tree, anchor, size: 0, at: null, error, error_at: errorAt })
    .onConflict((known) => known.columns(['tree', 'anchor']).doUpdateSet({ error, error_at: errorAt }))
  return { ...statementOf(query.compile(), 1), ...upkeep }
}

/** When the oldest checkpoint was signed that an anchor lacks; null if it lacks none. ms since the epoch. */
export async function oldestUnanchoredAt(
  db: AnchorsDatabase,
  tree: number,
  size: number,
): Promise<number | null> {
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
