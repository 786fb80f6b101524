import type { LeafVersion, StoredRow } from '../record/leaf.ts'
import { OUTCOME_STATUSES } from '../record/outcomes.ts'
import { isCallAction } from './decision.ts'
import type { OpenDecisions } from './ledger-state.ts'

// An honest log has as many as there are calls at one time.
const OPEN_LIMIT = 100_000

interface OpenDecisionPlace {
  readonly seq: number
  readonly version: LeafVersion
}

/** The open decisions of one stream, by request. */
type OpenDecisionsByRequest = Map<string, OpenDecisionPlace>

export interface DecisionPairing {
  /** Returns a row's fault, as half a sentence, or null; and the decisions of its stream that it ends. */
  add(
    row: StoredRow,
    version: LeafVersion,
  ): { readonly problem: string | null; readonly left: readonly number[] }
  /** Allowed decisions whose outcome may still come. */
  readonly open: number
  readonly isOpen: (request: string) => boolean
  readonly state: () => OpenDecisions
}

/**
 * Demands one outcome of each allowed decision, after it and before the next `service.started` of its stream,
 * and a decision of each outcome. Another stream may only say `unknown`. Rows of version 1 are exempt.
 * Follows 100,000 open decisions at most.
 */
export function decisionPairing(before?: OpenDecisions): DecisionPairing {
  const streams = new Map<string, OpenDecisionsByRequest>()
  const holders = new Map<string, string>()
  let overflowed = before?.open_is_cut ?? false
  for (const [id, [stream, seq, version]] of Object.entries(before?.open ?? {}))
    begin(id, stream, { seq, version })

  function decided(id: string, stream: string, place: OpenDecisionPlace): string | null {
    const holder = holders.get(id)
    if (holder !== undefined)
      return place.version === 1 || streams.get(holder)?.get(id)?.version === 1
        ? null
        : 'is allowed, but a call of this request_id is open'
    if (holders.size >= OPEN_LIMIT) {
      overflowed = true
      return null
    }
    begin(id, stream, place)
    return null
  }

  function begin(id: string, stream: string, place: OpenDecisionPlace): void {
    holders.set(id, stream)
    const own = streams.get(stream) ?? new Map<string, OpenDecisionPlace>()
    streams.set(stream, own.set(id, place))
  }

  function ended(id: string, stream: string, status: string): boolean {
    const holder = holders.get(id)
    if (holder === undefined || !(holder === stream || status === 'unknown')) return false
    holders.delete(id)
    return streams.get(holder)?.delete(id) ?? false
  }

  function started(stream: string): readonly number[] {
    const open = streams.get(stream) ?? new Map<string, OpenDecisionPlace>()
    streams.delete(stream)
    for (const id of open.keys()) holders.delete(id)
    return [...open.values()].filter(({ version }) => version === 2).map(({ seq }) => seq)
  }

  return {
    add: ({ request_id: id, action, status, stream, seq }, version) => {
      if (action === 'service.started') return { problem: null, left: started(stream) }
      if (!isCallAction(action)) return NOTHING
      if (status === 'allowed' && id !== null)
        return { problem: decided(id, stream, { seq, version }), left: [] }
      if (!OUTCOME_STATUSES.has(status)) return NOTHING
      const known = id !== null && ended(id, stream, status)
      return known || overflowed || version === 1 ? NOTHING : { problem: WITHOUT, left: [] }
    },
    get open() {
      return holders.size
    },
    isOpen: (id) => holders.has(id),
    state: () => ({
      open: Object.fromEntries(
        [...streams].flatMap(([stream, calls]) =>
          [...calls].map(([id, { seq, version }]) => [id, [stream, seq, version] as const]),
        ),
      ),
      open_is_cut: overflowed,
    }),
  }
}

const NOTHING = { problem: null, left: [] }

const WITHOUT = 'is an outcome without a decision'
