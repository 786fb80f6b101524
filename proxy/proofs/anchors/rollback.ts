import type { Database } from '../../../db/database.ts'
import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import { currentTree, tileReader } from '../../../db/ledger/tree/store.ts'
import { subtreeRoot } from '../../../db/ledger/tree/tiles.ts'
import { messageOf } from '../../../db/support/error-message.ts'
import { beginRenamedTree, type LogKeys } from '../log-keys.ts'
import type { AnchorOption } from '../options.ts'
import { anchorFiles } from './anchors.ts'
import { newestInFile } from './file.ts'

/** An anchor that knows more, or something else, than the database. */
interface AnchorContradiction {
  readonly anchor: string
  /** The rows that the anchor knows of, and those that are sealed here. */
  readonly anchored: number
  readonly sealed: number
}

interface RollbackCheck {
  readonly database: Database
  readonly keys: LogKeys
  readonly anchors: readonly AnchorOption[]
  readonly named: Parameters<typeof beginRenamedTree>[2]
  /** Why the operator goes on all the same; null if nobody has said so. */
  readonly accepted: string | null
  /** Makes the row that says so. */
  readonly entry: (detail: { readonly origin: string; readonly anchors: readonly string[] }) => LedgerEntry
}

/**
 * Compares the log with the newest checkpoint of each anchor that can be read here, and throws one sentence
 * if it is behind one, or another: rows were lost, or an older copy was put in their place
 * (docs/operating.md#rollback). If the operator has accepted that, a log of a new name begins, with a row
 * that says who and why. Resolves with its name, or null.
 */
export async function refuseRollback(checked: RollbackCheck): Promise<string | null> {
  const { database, keys, anchors, named, accepted, entry } = checked
  const found = await findContradictions(database, anchors)
  const [first] = found
  if (!first) return null
  if (accepted === null) throw new Error(sentenceOf(first))
  const said = found.map(({ anchor, anchored, sealed }) => `${anchor}: ${anchored} rows, not ${sealed}`)
  return beginRenamedTree(keys, database, named, accepted, (origin) => entry({ origin, anchors: said }))
}

const sentenceOf = ({ anchor, anchored, sealed }: AnchorContradiction): string =>
  `the anchor ${anchor} has a checkpoint of ${anchored} rows that does not fit this log, which has ${sealed} sealed rows: ` +
  'rows were lost, or an older copy was put in their place. Restore the newer one, or start once with ' +
  '--accept-rollback "why", which begins a log of a new name'

async function findContradictions(
  { kysely }: Database,
  anchors: readonly AnchorOption[],
): Promise<readonly AnchorContradiction[]> {
  const tree = await currentTree(kysely)
  if (!tree) return []
  const found: AnchorContradiction[] = []
  for (const path of anchorFiles(anchors)) {
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
