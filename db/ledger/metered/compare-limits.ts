import type { MeterKey, MeterState } from '../meters/meter-book.ts'
import { type LimitReplay, lastState, type ReplayedLimit } from './limit-replay.ts'
import { limitText } from './limit-states.ts'

/** The tables of limits, whoever has written them. */
export interface StoredLimits {
  /** The text of each state ({@link limitText}), or what stands in its place, by id. */
  readonly limits: ReadonlyMap<string, string>
  /** The meters of spans from {@link StoredLimits.since} on. */
  readonly meters: readonly (MeterKey & MeterState)[]
  readonly since: string
}

/** Compares the tables of limits with the rows. Does NOT compare meters of windows that the rows' walk has forgotten. */
export function limitFindings({ limits: known }: LimitReplay, stored: StoredLimits): readonly string[] {
  const there = [...known].filter(([, { removed }]) => removed === null)
  return [
    ...[...stored.limits].flatMap(([id, text]) => stateFinding(id, text, known.get(id))),
    ...there.flatMap(([id]) =>
      stored.limits.has(id) ? [] : [`limit ${id} is in the ledger, but not in the tables`],
    ),
    ...meterFindings(known, stored),
  ]
}

function stateFinding(id: string, text: string, known: ReplayedLimit | undefined): readonly string[] {
  if (!known || known.removed !== null) return [`limit ${id} is in the tables, but no row made it`]
  const says = limitText(lastState(known))
  return text === says ? [] : [`limit ${id}: the tables have ${text}, the ledger says ${says}`]
}

function meterFindings(
  known: ReadonlyMap<string, ReplayedLimit>,
  { meters, since }: StoredLimits,
): readonly string[] {
  const seen = new Set<string>()
  const findings = meters.flatMap((stored): readonly string[] => {
    const { limit, who, span } = stored
    // Of limits that are gone nothing is bounded.
    const own = known.get(limit)?.meters
    if (!own || own.isForgotten(span)) return []
    seen.add(nameOf(limit, who, span))
    const [has, says] = [countText(stored), countText(own.find(span, who)?.state ?? NONE)]
    return has === says
      ? []
      : [`${nameOf(limit, who, span)}: the tables have ${has}, the ledger says ${says}`]
  })
  const missing = [...known].flatMap(([limit, { meters: own }]) =>
    [...own].flatMap(([span, who]) => {
      const name = nameOf(limit, who, span)
      return span < since || seen.has(name) ? [] : [`${name} is in the ledger, but not in the tables`]
    }),
  )
  return [...findings, ...missing]
}

const NONE: MeterState = { n: 0, reserved: 0, spent: 0, tat: 0 }

const nameOf = (limit: string, who: string, span: string): string =>
  `the meter of the limit ${limit} ${who === '' ? 'of all' : `of ${who}`} in ${span}`

const countText = ({ n, reserved, spent, tat }: MeterState): string =>
  `change ${n}, ${spent} spent, ${reserved} reserved${tat === 0 ? '' : ` at ${tat}`}`
