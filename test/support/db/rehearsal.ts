import type { Entry } from '../../../db/ledger/record/entry.ts'
import type { StoredRow } from '../../../db/ledger/record/leaf.ts'
import { bindingName, type Changes } from '../../../db/ledger/rehearsal/changes.ts'
import { type Rehearsed, rehearser, type Window } from '../../../db/ledger/rehearsal/rehearse.ts'
import { BOT, chainOf } from './history.ts'

/** Changes as a test writes them. */
export interface Told {
  readonly capabilities?: readonly string[]
  readonly isActive?: boolean
  /** Of the resource `mcpr_1`. */
  readonly resource?: Changes['resources'] extends ReadonlyMap<string, infer State> ? State : never
  /** Whether the principal is bound to it. */
  readonly bound?: boolean
  readonly settings?: Changes['settings']
  /** Default: the one of the test histories. */
  readonly subject?: string
}

export function changes({ capabilities, isActive, resource, bound, settings, subject = BOT }: Told): Changes {
  const state = { ...(capabilities && { capabilities }), ...(isActive !== undefined && { isActive }) }
  return {
    principals: new Map(Object.keys(state).length > 0 ? [[subject, state]] : []),
    resources: new Map(resource ? [['mcpr_1', resource]] : []),
    bindings: new Map(bound === undefined ? [] : [[bindingName(subject, 'mcpr_1'), bound]]),
    settings: settings ?? {},
  }
}

export const ALL: Window = { since: '2000-01-01T00:00:00.000Z', until: '2100-01-01T00:00:00.000Z' }

/** What rehearsing changes over rows comes to. */
export function rehearsedRows(rows: Iterable<StoredRow>, told: Told, window: Window = ALL): Rehearsed {
  const walk = rehearser(changes(told), window)
  for (const { leaf } of rows) walk.see(leaf)
  return walk.result()
}

/** The same over entries. */
export const rehearsed = (entries: readonly Entry[], told: Told, window: Window = ALL): Rehearsed =>
  rehearsedRows(chainOf(entries), told, window)
