import type { LeafVersion, StoredRow } from '../leaf.ts'
import { isOfCall } from './decision.ts'

// In an honest log as many as there are calls at one time.
const OPEN_LIMIT = 100_000

const OUTCOMES = new Set(['success', 'error', 'truncated', 'unknown'])

interface Open {
  readonly seq: number
  readonly version: LeafVersion
}

/** Pairs the decisions and outcomes of one stream. */
export interface Pairs {
  /** Returns what is wrong with a row, as half a sentence, or null; and the decisions that it leaves behind. */
  see(
    row: StoredRow,
    version: LeafVersion,
  ): { readonly problem: string | null; readonly left: readonly number[] }
  /** Allowed decisions whose outcome may still come. */
  readonly open: number
}

/**
 * An allowed decision has one outcome, behind it and before the next `service.started`, and no outcome is
 * without its decision. Of rows of version 1 nothing is demanded. Follows 100,000 open decisions at the most.
 */
export function pairs(): Pairs {
  const open = new Map<string, Open>()
  let overflowed = false

  function decided(id: string, place: Open): string | null {
    const before = open.get(id)
    if (before) return before.version === 1 ? null : 'is allowed, but a call of this request_id is open'
    if (open.size >= OPEN_LIMIT) overflowed = true
    else open.set(id, place)
    return null
  }

  function started(): readonly number[] {
    const left = [...open.values()].filter(({ version }) => version === 2).map(({ seq }) => seq)
    open.clear()
    return left
  }

  return {
    see: ({ request_id: id, action, status, seq }, version) => {
      if (action === 'service.started') return { problem: null, left: started() }
      if (!isOfCall(action)) return NOTHING
      if (status === 'allowed' && id !== null) return { problem: decided(id, { seq, version }), left: [] }
      if (!OUTCOMES.has(status)) return NOTHING
      const known = id !== null && open.delete(id)
      return known || overflowed || version === 1 ? NOTHING : { problem: WITHOUT, left: [] }
    },
    get open() {
      return open.size
    },
  }
}

const NOTHING = { problem: null, left: [] }

const WITHOUT = 'is an outcome without a decision'
