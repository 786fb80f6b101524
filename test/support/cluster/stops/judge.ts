import { OpenStops } from '../../../../db/stops/open-stops.ts'
import { isStopped, stopScopeOf } from '../../../../db/stops/stop.ts'
import type { Row } from '../oracle.ts'

/** What the rows say of the stops of a run. Times: ms. */
export interface JudgedStops {
  readonly begun: number
  readonly ended: number
  readonly allowed: number
  readonly refused: number
  /** From the row that begins a stop to the outcome of each call that it has cut. Ascending. */
  readonly cuts: readonly number[]
  /** The allowed rows behind a stop of their scope, and the rows of stops that cannot be, each in a sentence. */
  readonly violations: readonly string[]
}

interface OpenCall {
  readonly row: Row
  /** The instant of the first stop that is for it. µs since the epoch; null: none yet. */
  stoppedAt: number | null
}

const OUTCOMES: ReadonlySet<string> = new Set(['success', 'error', 'truncated', 'unknown'])

/** Judges stops by the rows alone, in the order of their commits. */
export function judgeStops(rows: readonly Row[]): JudgedStops {
  const open = new OpenStops()
  const calls = new Map<string, OpenCall>()
  const violations: string[] = []
  const cuts: number[] = []
  const counts = { begun: 0, ended: 0, allowed: 0, refused: 0 }
  for (const row of rows) {
    const { action, status, request_id: id, detail } = row
    const what = /^stop\.(begun|ended)$/.exec(action)?.[1]
    if (what !== undefined && status === 'success') {
      counts[what === 'begun' ? 'begun' : 'ended'] += 1
      const wrong = open.apply(what, detail)
      if (wrong !== null) violations.push(`${place(row)} ${wrong}`)
      if (what === 'begun') noteStop(row, calls)
    } else if (status === 'allowed' && id !== null) {
      counts.allowed += 1
      const stop = open.find(stoppable(row))
      if (stop !== undefined) violations.push(`${place(row)} is allowed, and ${stop} was open`)
      calls.set(id, { row, stoppedAt: null })
    } else if (status === 'denied' && detail.reason === 'stopped') counts.refused += 1
    else if (id !== null && OUTCOMES.has(status)) {
      const { stoppedAt = null } = calls.get(id) ?? {}
      calls.delete(id)
      if (stoppedAt !== null && isCut(row)) cuts.push((row.committed - stoppedAt) / 1_000)
    }
  }
  return { ...counts, cuts: cuts.toSorted((a, b) => a - b), violations: [...violations, ...left(calls)] }
}

/** A call that went on under a stop, and has no outcome, was never cut. */
const left = (calls: ReadonlyMap<string, OpenCall>): readonly string[] =>
  [...calls.values()].flatMap(({ row, stoppedAt }) =>
    stoppedAt === null ? [] : [`${place(row)} was stopped, and has no outcome`],
  )

function noteStop({ detail, committed }: Row, calls: ReadonlyMap<string, OpenCall>): void {
  const scope = stopScopeOf(detail.scope)
  for (const call of calls.values())
    if (scope !== null && isStopped(scope, stoppable(call.row))) call.stoppedAt ??= committed
}

/** One that ended by itself at that moment was not cut. */
const isCut = ({ status, detail }: Row): boolean =>
  status !== 'success' && (detail.ending === 'revoked' || detail.reason === 'authority_revoked')

const stoppable = ({ action, principal_id: principal, principal_type: type }: Row) => ({
  ...{ action, principal, type },
  resource: null,
})

const place = ({ stream, seq }: Row): string => `row ${seq} of ${stream}`

/** Returns the time within which this part of them was cut. ms; null: none was. */
export const quantile = (ascending: readonly number[], part: number): number | null =>
  ascending[Math.min(ascending.length - 1, Math.ceil(ascending.length * part) - 1)] ?? null
