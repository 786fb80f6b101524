import type { LedgerEntry } from '../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import { bindingName, type HypotheticalChanges } from '../../../db/ledger/rehearsal/changes.ts'
import {
  type DecisionWindow,
  type RehearsalResult,
  rehearser,
} from '../../../db/ledger/rehearsal/rehearse.ts'
import { BOT, chainOf } from './history.ts'

/** Changes as a test writes them. */
export interface Told {
  readonly capabilities?: readonly string[]
  readonly isActive?: boolean
  /** Of the resource `mcpr_1`. */
  readonly resource?: HypotheticalChanges['resources'] extends ReadonlyMap<string, infer State>
    ? State
    : never
  /** Whether the principal is bound to it. */
  readonly bound?: boolean
  readonly settings?: HypotheticalChanges['settings']
  readonly stops?: HypotheticalChanges['stops']
  /** Default: the one of the test histories. */
  readonly subject?: string
}

export function changes({
  capabilities,
  isActive,
  resource,
  bound,
  settings,
  stops,
  subject = BOT,
}: Told): HypotheticalChanges {
  const state = { ...(capabilities && { capabilities }), ...(isActive !== undefined && { isActive }) }
  return {
    principals: new Map(Object.keys(state).length > 0 ? [[subject, state]] : []),
    resources: new Map(resource ? [['mcpr_1', resource]] : []),
    bindings: new Map(bound === undefined ? [] : [[bindingName(subject, 'mcpr_1'), bound]]),
    settings: settings ?? {},
    ...(stops && { stops }),
  }
}

export const ALL: DecisionWindow = { since: '2000-01-01T00:00:00.000Z', until: '2100-01-01T00:00:00.000Z' }

/** What rehearsing changes over rows comes to. */
export function rehearsedRows(
  rows: Iterable<StoredRow>,
  told: Told,
  window: DecisionWindow = ALL,
): RehearsalResult {
  const walk = rehearser(changes(told), window)
  for (const { leaf } of rows) walk.see(leaf)
  return walk.result()
}

/** The same over entries. */
export const rehearsed = (
  entries: readonly LedgerEntry[],
  told: Told,
  window: DecisionWindow = ALL,
): RehearsalResult => rehearsedRows(chainOf(entries), told, window)
