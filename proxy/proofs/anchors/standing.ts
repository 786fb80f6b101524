import type { Database } from '../../../db/database.ts'
import { type AnchorState, anchorStates, oldestUnanchoredAt } from '../../../db/ledger/tree/anchored.ts'
import { currentTree } from '../../../db/ledger/tree/store.ts'
import type { AnchorStanding } from '../../admin/operation/anchor-standing.ts'
import type { AnchorOption } from '../options.ts'
import { anchorName } from './anchors.ts'

/** The time that an anchor may lack a checkpoint: a time stamp is asked for once a minute. ms. */
const LATE_MS = 120_000

/** Returns the progress of each anchor of the configuration, in order, in the log in force. */
export async function anchorStandings(
  { kysely }: Pick<Database, 'kysely'>,
  options: readonly AnchorOption[],
  now: number,
): Promise<readonly AnchorStanding[]> {
  const tree = options.length > 0 ? await currentTree(kysely) : undefined
  if (!tree) return options.map((option) => standingOf(anchorName(option), undefined, false))
  const states = new Map((await anchorStates(kysely, tree.tree)).map((state) => [state.anchor, state]))
  const standings: AnchorStanding[] = []
  for (const name of options.map(anchorName)) {
    const state = states.get(name)
    const since = await oldestUnanchoredAt(kysely, tree.tree, state?.size ?? 0)
    standings.push(standingOf(name, state, since !== null && now - since > LATE_MS))
  }
  return standings
}

const standingOf = (anchor: string, state: AnchorState | undefined, late: boolean): AnchorStanding => ({
  anchor,
  size: state?.size ?? 0,
  kept_at: state?.at ?? null,
  error: state?.error ?? null,
  failed_at: state?.error_at ?? null,
  late,
})
