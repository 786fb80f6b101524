import { anchorStates, lackingSince } from '../../../db/audit/tree/anchored.ts'
import { treeInForce } from '../../../db/audit/tree/store.ts'
import type { Database } from '../../../db/database.ts'
import type { AnchorOption } from '../options.ts'
import { anchorName } from './anchors.ts'

/** The time that an anchor may lack a checkpoint: a time stamp is asked for once a minute. ms. */
const LATE_MS = 120_000

/** The anchors that have lacked a checkpoint for more than two minutes, by name. */
export async function lateAnchors(
  { kysely }: Pick<Database, 'kysely'>,
  options: readonly AnchorOption[],
  now: number,
): Promise<readonly string[]> {
  const tree = options.length > 0 ? await treeInForce(kysely) : undefined
  if (!tree) return []
  const sizes = new Map((await anchorStates(kysely, tree.tree)).map(({ anchor, size }) => [anchor, size]))
  const late: string[] = []
  for (const name of options.map(anchorName)) {
    const since = await lackingSince(kysely, tree.tree, sizes.get(name) ?? 0)
    if (since !== null && now - since > LATE_MS) late.push(name)
  }
  return late
}
