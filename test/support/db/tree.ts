import type { Database } from '../../../db/database.ts'
import { parseNote, parseVerifierKey, verifyNoteSignature } from '../../../db/ledger/tree/note.ts'
import { currentTree, noteOfCheckpoint, treeKeysOf } from '../../../db/ledger/tree/store.ts'
import { compactTree } from '../../../db/ledger/tree/walk.ts'

/**
 * What is wrong with the tree of a ledger at rest: every checkpoint must have the root of its rows, and be signed.
 * Reads everything, by no code that seals.
 */
export async function treeProblems({ kysely, treeRows }: Database): Promise<readonly string[]> {
  const tree = await currentTree(kysely)
  if (!tree) return ['no tree was begun']
  const stored = await kysely
    .selectFrom('audit_checkpoints')
    .selectAll()
    .where('tree', '=', tree.tree)
    .orderBy('size')
    .execute()
  const keys = (await treeKeysOf(kysely, tree.tree)).map(({ vkey }) => parseVerifierKey(vkey))
  const compact = compactTree()
  const problems: string[] = []
  for (const checkpoint of stored) {
    const leaves = await treeRows.leaves(0, compact.size, checkpoint.size - compact.size)
    for (const leaf of leaves) compact.add(leaf)
    if (compact.size !== checkpoint.size)
      problems.push(`${checkpoint.size} rows are sealed, but there are ${compact.size}`)
    if (compact.root().toString('base64') !== checkpoint.root)
      problems.push(`another root at ${checkpoint.size}`)
    const note = parseNote(await noteOfCheckpoint(kysely, tree, checkpoint))
    if (!keys.some((key) => verifyNoteSignature(note, key).good))
      problems.push(`nobody has signed ${checkpoint.size}`)
  }
  // By one statement: another replica may be sealing.
  const { size, newest } = await kysely
    .selectFrom('audit_trees')
    .select((eb) => [
      'size',
      eb
        .selectFrom('audit_checkpoints')
        .select((of) => of.fn.max('size').as('newest'))
        .whereRef('audit_checkpoints.tree', '=', 'audit_trees.tree')
        .as('newest'),
    ])
    .where('tree', '=', tree.tree)
    .executeTakeFirstOrThrow()
  if ((newest ?? 0) !== size) problems.push('the tree has another size than its checkpoint')
  return problems
}
