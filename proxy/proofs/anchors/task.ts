import type { Logger } from 'pino'
import type { Database } from '../../../db/database.ts'
import type { Ledger } from '../../../db/ledger/record/ledger.ts'
import { anchorStates, recordAnchorFailure, recordAnchoring } from '../../../db/ledger/tree/anchored.ts'
import { checkpointText } from '../../../db/ledger/tree/checkpoint.ts'
import { consistencyProof } from '../../../db/ledger/tree/proofs.ts'
import {
  checkpointOf,
  currentTree,
  newestCheckpoint,
  noteOfCheckpoint,
  tileReader,
} from '../../../db/ledger/tree/store.ts'
import { messageOf } from '../../../db/support/error-message.ts'
import { type RoundsTask, rounds } from '../../tasks/rounds.ts'
import type { AnchorOption } from '../options.ts'
import type { CheckpointAnchor, PendingCheckpoint } from './anchor.ts'
import { anchorOf } from './anchors.ts'
import { anchorAgent, anchorPoster } from './web.ts'

const EVERY_MS = 1_000
/** More than a file can name. */
const AT_ONCE = 16
/** The longest pause after failures. ms. */
const MAX_RETRY_PAUSE_MS = 60_000
/** Characters of an error that are kept. */
const ERROR_LENGTH = 500

interface AnchorTaskDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  readonly anchors: () => readonly AnchorOption[]
  readonly clock: () => number
  readonly log: Logger
  /** Told of each failure. */
  readonly onFailure: (anchor: string) => void
}

interface DueCheckpoint {
  readonly tree: number
  readonly anchor: CheckpointAnchor
  readonly checkpoint: PendingCheckpoint
}

/**
 * Hands the newest checkpoint to each anchor that lacks it, in the one process that leads. Nobody waits for
 * it: an anchor that fails is tried again, after longer and longer pauses, with whichever checkpoint is the
 * newest then.
 */
export function anchorCheckpoints({
  database,
  ledger,
  anchors,
  clock,
  log,
  onFailure,
}: AnchorTaskDependencies): RoundsTask {
  const agent = anchorAgent()
  const post = anchorPoster(agent)
  const { kysely } = database
  /** Keyed by name: failures in a row, and the next try, in ms since the epoch. */
  const failing = new Map<string, { readonly count: number; readonly until: number }>()

  async function due(): Promise<readonly DueCheckpoint[]> {
    const options = anchors()
    const tree = options.length > 0 ? await currentTree(kysely) : undefined
    const newest = tree && (await newestCheckpoint(kysely, tree.tree))
    if (!tree || !newest) return []
    const states = new Map((await anchorStates(kysely, tree.tree)).map((state) => [state.anchor, state]))
    const checkpoint = checkpointOf(tree.origin, newest)
    const read = tileReader(kysely, tree.tree)
    const note = await noteOfCheckpoint(kysely, tree, newest)
    const isDue = ({ name, everyMs = 0 }: CheckpointAnchor): boolean => {
      const { size = 0, at = null } = states.get(name) ?? {}
      const since = at === null ? Number.NEGATIVE_INFINITY : Date.parse(at)
      return size < newest.size && since + everyMs <= clock() && (failing.get(name)?.until ?? 0) <= clock()
    }
    return options
      .map((option) => anchorOf(option, post))
      .filter(isDue)
      .map((anchor) => ({
        tree: tree.tree,
        anchor,
        checkpoint: {
          ...checkpoint,
          note,
          text: checkpointText(checkpoint),
          has: states.get(anchor.name)?.size ?? 0,
          consistency: (from: number) => consistencyProof(read, from, newest.size),
        },
      }))
  }

  async function keep({ tree, anchor, checkpoint }: DueCheckpoint, signal: AbortSignal): Promise<void> {
    const of = { tree, anchor: anchor.name }
    try {
      const proof = await anchor.keep(checkpoint, signal)
      failing.delete(anchor.name)
      const kept = recordAnchoring(kysely, { ...of, size: checkpoint.size, proof, at: clock() })
      await ledger.commit({ statements: kept, entries: [], lazy: true })
    } catch (error) {
      if (signal.aborted) return
      const count = (failing.get(anchor.name)?.count ?? 0) + 1
      failing.set(anchor.name, {
        count,
        until: clock() + Math.min(MAX_RETRY_PAUSE_MS, 1_000 * 2 ** (count - 1)),
      })
      onFailure(anchor.name)
      const said = messageOf(error).slice(0, ERROR_LENGTH)
      log.warn({ anchor: anchor.name, err: error, failures: count }, 'a checkpoint could not be anchored')
      const failed = recordAnchorFailure(kysely, { ...of, error: said, at: clock() })
      await ledger.commit({ statements: [failed], entries: [], lazy: true }).catch(() => {
        // The ledger says by itself that it takes nothing.
      })
    }
  }

  const task = rounds({
    name: 'anchor-checkpoints',
    everyMs: EVERY_MS,
    leads: () => database.leads('anchor-checkpoints'),
    atOnce: AT_ONCE,
    waits: false,
    due: async function* () {
      yield* await due()
    },
    idOf: ({ anchor }) => anchor.name,
    work: keep,
  })
  const stop = async (): Promise<void> => {
    await task.stop()
    await agent.destroy()
  }
  return { ...task, stop }
}
