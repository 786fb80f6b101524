import type { Database } from '../../../db/database.ts'
import { type AnchorState, anchorStates, oldestUnanchoredAt } from '../../../db/ledger/tree/anchored.ts'
import { currentTree } from '../../../db/ledger/tree/store.ts'
import type { AnchorStanding } from '../../admin/operation/shapes.ts'
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

/** Makes the function that reads them for the anchors of one configuration. */
export const anchorStandingsOf =
  (database: Pick<Database, 'kysely'>, options: readonly AnchorOption[], clock: () => number) =>
  (): ReturnType<typeof anchorStandings> =>
    anchorStandings(database, options, clock())

interface AnchorsInForce {
  readonly proofs: { readonly anchors: readonly AnchorOption[] }
}

/** Makes the function that counts the anchors of the configuration in force that are late. */
export const lateAnchorsOf =
  (database: Pick<Database, 'kysely'>, inForce: () => AnchorsInForce, clock: () => number) =>
  async (): Promise<number> => {
    const standings = await anchorStandings(database, inForce().proofs.anchors, clock())
    return standings.filter(({ late }) => late).length
  }

const standingOf = (anchor: string, state: AnchorState | undefined, late: boolean): AnchorStanding => ({
  anchor,
  size: state?.size ?? 0,
  kept_at: state?.at ?? null,
  error: state?.error ?? null,
  failed_at: state?.error_at ?? null,
  late,
})
