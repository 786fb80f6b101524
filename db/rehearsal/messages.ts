import type { DatabaseLocation } from '../engine.ts'
import type { Watched } from '../ledger/rehearsal/candidate.ts'
import type { Changes } from '../ledger/rehearsal/changes.ts'
import type { Rehearsed } from '../ledger/rehearsal/rehearse.ts'
import type { Progress, Wanted } from '../ledger/rehearsal/task.ts'
import type { Used } from '../ledger/rehearsal/usage.ts'

/** What is asked of the recorded calls. */
export type WalkTask =
  | { readonly kind: 'rehearse'; readonly wanted: Wanted; readonly changes: Changes }
  | { readonly kind: 'usage'; readonly wanted: Wanted; readonly principal: string }
  // `since` names the set.
  | {
      readonly kind: 'candidate'
      readonly wanted: Wanted
      readonly principal: string
      readonly since: string
    }

/** The same, and where they are. */
export type WalkData = WalkTask & { readonly location: DatabaseLocation }

/** What it comes to, by what was asked. */
export interface Walked {
  readonly rehearse: Rehearsed
  readonly usage: Used
  readonly candidate: Watched
}

/** A message from the thread. The last one is `done`; a thread that cannot go on ends with an error. */
export type FromWalk =
  | ({ readonly kind: 'progress' } & Progress)
  | { readonly kind: 'done'; readonly result: Walked[keyof Walked] }
