import type { DatabaseLocation } from '../engine.ts'
import type { CandidateReport } from '../ledger/rehearsal/candidate.ts'
import type { HypotheticalChanges } from '../ledger/rehearsal/changes.ts'
import type { RehearsalResult } from '../ledger/rehearsal/rehearse.ts'
import type { WalkProgress, WalkScope } from '../ledger/rehearsal/task.ts'
import type { PrincipalUsage } from '../ledger/rehearsal/usage.ts'

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

export type LocatedWalkTask = WalkTask & { readonly location: DatabaseLocation }

export interface WalkResults {
  readonly rehearse: RehearsalResult
  readonly usage: PrincipalUsage
  readonly candidate: CandidateReport
}

export interface WalkTasks {
  readonly walk: (task: LocatedWalkTask) => AsyncGenerator<WalkProgress, WalkResults[keyof WalkResults], void>
}
