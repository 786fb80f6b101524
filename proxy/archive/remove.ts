import { setTimeout as wait } from 'node:timers/promises'
import type { Database } from '../../db/database.ts'
import { removeCounts } from '../../db/ledger/counts/store.ts'
import type { Ledger } from '../../db/ledger/record/ledger.ts'
import {
  countPlaces,
  markSegment,
  nextPlace,
  openPlaces,
  removeBeside,
  removeRows,
  type StoredSegment,
} from '../../db/ledger/tree/segments.ts'
import type { LedgerStatement } from '../../db/support/statement.ts'
import { noteEntry } from '../../plugins/audit/entries.ts'

/** The rows that go in one transaction, so many that it holds up the calls after it for some ms. */
const [MIN_SLICE, MAX_SLICE] = [256, 4_096]
const SLICE_MS = 25

export interface RemovalDependencies {
  readonly database: Pick<Database, 'kysely' | 'engine'>
  readonly ledger: Pick<Ledger, 'commit'>
  readonly clock: () => number
  readonly configDigest: () => string
  /** Asked between two slices: false ends the removal, which the next one goes on with. */
  readonly goesOn: () => boolean
}

/**
 * Removes the rows of an archived segment, and what is stored beside them, slice by slice; then the row
 * `ledger.removed`. May be done again from the beginning at any time. Returns whether all of it is gone.
 */
export async function removeSegment(
  dependencies: RemovalDependencies,
  segment: StoredSegment,
): Promise<boolean> {
  const { database, ledger, clock, configDigest, goesOn } = dependencies
  const { first, last, last_place: until } = segment
  const { kysely } = database
  // Half of the time is left to calls.
  const commit = async (statements: readonly LedgerStatement[]): Promise<number> => {
    const from = performance.now()
    await ledger.commit({ statements, entries: [] })
    const took = performance.now() - from
    await wait(took)
    return took
  }
  // From the beginning: the newest row of a stream stayed, and may be another one now; so may a call have ended.
  for (let [after, slice] = [0, MIN_SLICE]; ; ) {
    const from = await nextPlace(database, after, until)
    if (from === null) break
    if (!goesOn()) return false
    after = Math.min(from + slice - 1, until)
    let next = from
    const gone: LedgerStatement[] = []
    for (const stays of [...(await openPlaces(database, from, after)), after + 1]) {
      if (next < stays) gone.push(removeRows(database, next, stays - 1))
      next = stays + 1
    }
    if (gone.length === 0) continue
    const fit = (slice * SLICE_MS) / (await commit(gone))
    slice = Math.round(Math.min(MAX_SLICE, 2 * slice, Math.max(MIN_SLICE, fit)))
  }
  for (;;) {
    const statements =
      (await removeBeside(database, { size: last + 1 })) ?? (await removeCounts(kysely, segment.until))
    if (statements === null) break
    if (!goesOn()) return false
    await commit(statements)
  }
  const kept = await countPlaces(database, segment.last_place - (last - first + 1), until)
  const detail = { first, last, rows: last - first + 1 - kept }
  const row = noteEntry({ action: 'ledger.removed', detail }, clock(), configDigest())
  await ledger.commit({ statements: [markSegment(kysely, segment, 'removed_at', clock())], entries: [row] })
  return true
}
