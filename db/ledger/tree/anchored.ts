import type { Kysely, Selectable } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { type LedgerStatement, statementOf, timestamp } from '../../support/statement.ts'

interface StoredStamp {
  readonly size: number
  /** base64. */
  readonly proof: string
}

/** The time stamps of a tree over more than `after` rows and at most `until`: by size, then by anchor. */
export const stampsBetween = (
  db: Kysely<DatabaseSchema>,
  tree: number,
  { after, until }: { readonly after: number; readonly until: number },
): Promise<readonly StoredStamp[]> =>
  db
    .selectFrom('audit_cosignatures')
    .select(['size', 'proof'])
    .where('tree', '=', tree)
    .where('size', '>', after)
    .where('size', '<=', until)
    .where('anchor', 'like', 'timestamp:%')
    .orderBy('size')
    .orderBy('anchor')
    .execute()

/** Stored time stamps as bytes, by size. The bytes may be no time stamp: the reader says so. */
export function stampsBySize(stored: readonly StoredStamp[]): ReadonlyMap<number, readonly Buffer[]> {
  const found = new Map<number, Buffer[]>()
  for (const { size, proof } of stored) found.set(size, [...(found.get(size) ?? []), bytesOf(proof)])
  return found
}

// A text that is not base64 in its one form was never stored here: it has no bytes, and is no time stamp.
function bytesOf(proof: string): Buffer {
  const bytes = Buffer.from(proof, 'base64')
  return bytes.toString('base64') === proof ? bytes : Buffer.alloc(0)
}

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
