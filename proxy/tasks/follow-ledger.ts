import type { Logger } from 'pino'
import type { Database } from '../../db/database.ts'
import { followLedger, type LedgerFollower, noteFailing } from '../../db/ledger/cursors/follow.ts'
import { HeadWatch } from '../../db/ledger/cursors/heads.ts'
import { LedgerError } from '../../db/ledger/record/entry.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import { messageOf } from '../../db/support/error-message.ts'
import { type RoundsTask, rounds } from './rounds.ts'

interface FollowersDependencies {
  readonly database: Database
  readonly ledger: Pick<Ledger, 'commit'>
  /** The readers of the configuration in force. Their names differ. */
  readonly followers: () => Promise<readonly LedgerFollower[]>
  /** Told of each failure. */
  readonly onFailure?: (name: string) => void
  readonly clock: () => number
  readonly log: Pick<Logger, 'warn' | 'info'>
}

const NAME = 'follow-ledger'
/** The interval at which new rows are looked for: the time that a row takes on its way. ms. */
const EVERY_MS = 1_000
/** The pause after a failure, doubled after each further one. ms. */
const [RETRY_MS, MAX_RETRY_MS] = [1_000, 60_000]
/** Readers at work at once: each holds a page or two. */
const AT_ONCE = 16

interface FailingFollower {
  readonly failures: number
  /** On the clock of `performance.now()`. */
  readonly retryAt: number
}

/** Has each reader of the ledger take the rows behind its cursor, in the process that leads. */
export function followersTask(given: FollowersDependencies): RoundsTask {
  const { database, followers, onFailure, log } = given
  const dependencies = { ...given, heads: new HeadWatch(database) }
  const failing = new Map<string, FailingFollower>()

  async function fail(follower: LedgerFollower, error: unknown): Promise<void> {
    const { name } = follower
    const failures = (failing.get(name)?.failures ?? 0) + 1
    const pauseMs = Math.min(MAX_RETRY_MS, RETRY_MS * 2 ** (failures - 1))
    failing.set(name, { failures, retryAt: performance.now() + pauseMs })
    onFailure?.(name)
    log.warn({ reader: name, failures, pauseMs }, `rows of the ledger are not taken: ${messageOf(error)}`)
    await noteFailing(dependencies, follower, messageOf(error)).catch((fault: unknown) =>
      log.warn({ err: fault, reader: name }, 'the failure was not stored'),
    )
  }

  return rounds<LedgerFollower>({
    name: NAME,
    everyMs: EVERY_MS,
    atOnce: AT_ONCE,
    waits: false,
    leads: () => database.leads(NAME),
    due: async function* () {
      for (const follower of await followers())
        if (performance.now() >= (failing.get(follower.name)?.retryAt ?? 0)) yield follower
    },
    idOf: ({ name }) => name,
    work: async (follower, signal) => {
      try {
        await followLedger(dependencies, follower, signal)
        if (failing.delete(follower.name)) log.info({ reader: follower.name }, 'rows are taken again')
      } catch (error) {
        // Another process has taken over, or somebody has rewound it: the next round goes on from there.
        if (signal.aborted || (error instanceof LedgerError && ['conflict', 'closed'].includes(error.code)))
          return
        await fail(follower, error)
      }
    },
  })
}
