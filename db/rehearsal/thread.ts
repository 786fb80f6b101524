import type { DatabaseLocation } from '../engine.ts'
import type { ArchiveFolder } from '../ledger/read/find.ts'
import type { CandidateReport } from '../ledger/rehearsal/candidate.ts'
import type { HypotheticalChanges } from '../ledger/rehearsal/changes.ts'
import type { RehearsalResult, WalkProgress, WalkScope } from '../ledger/rehearsal/rehearse.ts'
import type { PrincipalUsage } from '../ledger/rehearsal/usage.ts'
import { ThreadPool } from '../support/thread.ts'

export type WalkTask =
  | { readonly kind: 'rehearse'; readonly wanted: WalkScope; readonly changes: HypotheticalChanges }
  | { readonly kind: 'usage'; readonly wanted: WalkScope; readonly principal: string }
  // `since` names the set.
  | {
      readonly kind: 'candidate'
      readonly wanted: WalkScope
      readonly principal: string
      readonly since: string
    }

/** `folder`: of the archive, into which the walk goes on; null: there is none. */
export type LocatedWalkTask = WalkTask & {
  readonly location: DatabaseLocation
  readonly folder: string | null
}

export interface WalkResults {
  readonly rehearse: RehearsalResult
  readonly usage: PrincipalUsage
  readonly candidate: CandidateReport
}

export interface WalkTasks {
  readonly walk: (task: LocatedWalkTask) => AsyncGenerator<WalkProgress, WalkResults[keyof WalkResults], void>
}

/** A bug that kept every row would end the thread, and not the gateway. MiB. */
const MAX_HEAP_MIB = 1_024
/** The time that a thread is kept without a walk. ms. */
const IDLE_MS = 30_000

export type WalkTaskOf<Kind extends WalkTask['kind']> = Extract<WalkTask, { readonly kind: Kind }>

const threads = (maxIdle: number): ThreadPool<WalkTasks> =>
  new ThreadPool(import.meta, './worker', {
    name: 'the walk over the ledger',
    // Whoever asks has a place among four.
    maxThreads: Number.POSITIVE_INFINITY,
    maxIdle,
    idleMs: IDLE_MS,
    endsOnAbort: true,
    worker: { resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MIB } },
  })

const shortWalks = threads(1)
/** Threads over the calls of all, which give way to others for good: each ends with its walk. */
const longWalks = threads(0)

/**
 * Walks on a thread. `onProgress` is told a few times a second. Rejects with the signal's reason, which ends
 * the thread, and with an Error if the ledger cannot be read.
 */
export async function walkOnThread<Kind extends WalkTask['kind']>(
  location: DatabaseLocation,
  task: WalkTaskOf<Kind>,
  signal: AbortSignal,
  onProgress: (progress: WalkProgress) => void = () => {},
  folder: string | null = null,
): Promise<WalkResults[Kind]> {
  const pool = task.wanted.principals === null ? longWalks : shortWalks
  const walk = pool.stream('walk', { ...task, location, folder }, { signal })
  let next = await walk.next()
  for (; !next.done; next = await walk.next()) onProgress(next.value)
  // The kind that was asked for.
  return next.value as WalkResults[Kind]
}

export const walkerOf =
  (location: DatabaseLocation, archive: ArchiveFolder) =>
  <Kind extends WalkTask['kind']>(
    task: WalkTaskOf<Kind>,
    signal: AbortSignal,
    onProgress?: (progress: WalkProgress) => void,
  ): Promise<WalkResults[Kind]> =>
    walkOnThread(location, task, signal, onProgress, archive.path)
