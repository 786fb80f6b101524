import type { Changes } from '../audit/rehearsal/changes.ts'
import type { Rehearsed } from '../audit/rehearsal/rehearse.ts'
import type { Progress, Wanted } from '../audit/rehearsal/task.ts'
import type { DatabaseLocation } from '../engine.ts'

/** The start of a rehearsal's thread. */
export interface RehearsalData {
  readonly location: DatabaseLocation
  readonly changes: Changes
  readonly wanted: Wanted
}

/** A message from it. The last one is `done`; a thread that cannot go on ends with an error. */
export type FromRehearsal =
  | ({ readonly kind: 'progress' } & Progress)
  | { readonly kind: 'done'; readonly rehearsed: Rehearsed }
