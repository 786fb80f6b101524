import type { Database } from '../../db/database.ts'
import { readCursors, rewindCursor } from '../../db/ledger/cursors/cursors.ts'
import { readHeads, type StreamHead } from '../../db/ledger/cursors/heads.ts'
import type { ExportStanding } from '../admin/operation/archive-shapes.ts'
import type { ExportDesk } from '../admin/operation/context.ts'
import { type ExportOptions, followerName, type SinkOptions, targetOf } from './options.ts'

/** The time for which a sink may be behind before somebody must look. ms. */
export const LATE_MS = 300_000
/** The streams that are shown of a sink. */
const MAX_CURSORS = 100

type DeskDatabase = Pick<Database, 'kysely' | 'engine'>

/** Makes the exports of one configuration, as operations see them. `options`: null if there is no file. */
export const exportDesk = (database: DeskDatabase, options: ExportOptions | null): ExportDesk => ({
  list: async (at) => {
    const sinks = options?.sinks ?? []
    if (sinks.length === 0) return []
    const heads = await readHeads(database)
    const standings: ExportStanding[] = []
    for (const sink of sinks) standings.push(await standingOf(database, sink, heads, at))
    return standings
  },
  rewind: async (name, { stream, seq }, at) => {
    const sink = options?.sinks.find((one) => one.name === name)
    if (!sink) return null
    const { places } = await readCursors(database, followerName(sink))
    const head = (await readHeads(database)).find((one) => one.stream === stream)?.head ?? 0
    const statements = rewindCursor(database, followerName(sink), { stream, seq }, at)
    return { head, from: places.get(stream) ?? 0, statements }
  },
})

async function standingOf(
  database: DeskDatabase,
  sink: SinkOptions,
  heads: readonly StreamHead[],
  at: number,
): Promise<ExportStanding> {
  const { places, failure, begun } = await readCursors(database, followerName(sink))
  // One that has never run begins at the heads, or at the first row.
  const placeIn = ({ stream, head }: StreamHead): number =>
    begun ? (places.get(stream) ?? 0) : sink.from === 'now' ? head : 0
  const cursors = heads
    .map((one) => ({ ...one, seq: placeIn(one) }))
    .toSorted((one, other) => other.head - other.seq - (one.head - one.seq))
  const lag = cursors.reduce((sum, { head, seq }) => sum + Math.max(0, head - seq), 0)
  const waiting = lag === 0 ? null : await oldestWaiting(database, cursors)
  return {
    ...{ name: sink.name, kind: sink.kind, target: targetOf(sink), format: sink.format },
    ...{ actions: sink.actions ?? null, lag_rows: lag, waiting_since: waiting },
    ...{ failing_since: failure?.since ?? null, error: failure?.error ?? null },
    late: isOld(failure?.since ?? null, at) || (lag > 0 && (waiting === null || isOld(waiting, at))),
    cursors: cursors.slice(0, MAX_CURSORS).map(({ stream, seq, head }) => ({ stream, seq, head })),
  }
}

const isOld = (instant: string | null, at: number): boolean =>
  instant !== null && Date.parse(instant) <= at - LATE_MS

/** The streams whose oldest waiting row is looked up. */
const MAX_LOOKED_UP = 16

/** When the oldest row that waits was recorded; null if it is not in the database. */
async function oldestWaiting(
  { kysely }: DeskDatabase,
  cursors: readonly (StreamHead & { readonly seq: number })[],
): Promise<string | null> {
  const found: string[] = []
  for (const { stream, seq, head } of cursors.slice(0, MAX_LOOKED_UP)) {
    if (seq >= head) break
    const row = await kysely
      .selectFrom('audit_log')
      .select('recorded_at')
      .where('stream', '=', stream)
      .where('seq', '=', seq + 1)
      .executeTakeFirst()
    if (!row) return null
    found.push(row.recorded_at)
  }
  return found.toSorted()[0] ?? null
}
