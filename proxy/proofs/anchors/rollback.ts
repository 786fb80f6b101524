import type { Database } from '../../../db/database.ts'
import type { Entry } from '../../../db/ledger/record/entry.ts'
import { tileReader, treeInForce } from '../../../db/ledger/tree/store.ts'
import { subtreeRoot } from '../../../db/ledger/tree/tiles.ts'
import { messageOf } from '../../../db/support/error-message.ts'
import { beginAnew, type LogKeys } from '../log-keys.ts'
import type { AnchorOption } from '../options.ts'
import { filesOf } from './anchors.ts'
import { newestInFile } from './file.ts'

/** An anchor that knows of more, or of something else, than the database has. */
interface Contradicted {
  readonly anchor: string
  /** The rows that the anchor knows of, and those that are sealed here. */
  readonly anchored: number
  readonly sealed: number
}

interface Checked {
  readonly database: Database
  readonly keys: LogKeys
  readonly anchors: readonly AnchorOption[]
  readonly named: Parameters<typeof beginAnew>[2]
  /** Why the operator goes on all the same; null where nobody has said so. */
  readonly accepted: string | null
  /** Makes the row that says so. */
  readonly entry: (detail: { readonly origin: string; readonly anchors: readonly string[] }) => Entry
}

/**
 * Compares the log with the newest checkpoint of each anchor that can be read here, and throws one sentence where it is
 * behind one, or another: rows were lost, or an older copy was put in their place (docs/operating.md#rollback). Where the
 * operator has accepted that, a log of a new name begins, with a row that says who and why. Resolves with its name, or null.
 */
export async function refuseRollback(checked: Checked): Promise<string | null> {
  const { database, keys, anchors, named, accepted, entry } = checked
  const found = await contradicted(database, anchors)
  const [first] = found
  if (!first) return null
  if (accepted === null) throw new Error(sentenceOf(first))
  const said = found.map(({ anchor, anchored, sealed }) => `${anchor}: ${anchored} rows, not ${sealed}`)
  return beginAnew(keys, database, named, accepted, (origin) => entry({ origin, anchors: said }))
}

const sentenceOf = ({ anchor, anchored, sealed }: Contradicted): string =>
  `the anchor ${anchor} has a checkpoint of ${anchored} rows that is not this log's, of which ${sealed} rows are sealed: ` +
  'rows were lost, or an older copy was put in their place. Restore the newer one; or start once with ' +
  '--accept-rollback "why", which begins a log of a new name'

async function contradicted(
  { kysely }: Database,
  anchors: readonly AnchorOption[],
): Promise<readonly Contradicted[]> {
  const tree = await treeInForce(kysely)
  if (!tree) return []
  const found: Contradicted[] = []
  for (const path of filesOf(anchors)) {
    const newest = await newestInFile(path, tree.origin).catch((error: unknown) => {
      throw new Error(`the anchor file:${path} cannot be read: ${messageOf(error)}`, { cause: error })
    })
    if (!newest || newest.size === 0) continue
    const fits =
      newest.size <= tree.size &&
      (await subtreeRoot(tileReader(kysely, tree.tree), 0, newest.size)).equals(newest.root)
    if (!fits) found.push({ anchor: `file:${path}`, anchored: newest.size, sealed: tree.size })
  }
  return found
}
