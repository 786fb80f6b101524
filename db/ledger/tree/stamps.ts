import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'

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
