import type { Compilable } from 'kysely'
import type { Database } from '../../database.ts'
import { type LedgerStatement, statementOf, timestamp } from '../../support/statement.ts'
import type { StreamHead } from './heads.ts'

type CursorDatabase = Pick<Database, 'kysely'>

/** The places up to which a reader of the ledger has taken rows, by stream. */
export interface SinkCursors {
  /** False: it has never read. */
  readonly begun: boolean
  /** The leaves of the archive that it has behind it. */
  readonly leaves: number
  readonly places: Map<string, number>
  /** Since when it fails, and why. */
  readonly failure: { readonly since: string; readonly error: string } | null
}

/** The stream of the row that is of a reader as a whole. */
const WHOLE = ''
/** The length of a stored error. UTF-16 code units. */
const MAX_ERROR = 500

export async function readCursors({ kysely }: CursorDatabase, sink: string): Promise<SinkCursors> {
  const rows = await kysely.selectFrom('export_cursors').selectAll().where('sink', '=', sink).execute()
  const whole = rows.find(({ stream }) => stream === WHOLE)
  const places = rows.filter(({ stream }) => stream !== WHOLE).map((row) => [row.stream, row.seq] as const)
  const { failed_at: since = null, error = '' } = whole ?? {}
  const failure = since === null ? null : { since, error: error ?? '' }
  return { begun: whole !== undefined, leaves: whole?.seq ?? 0, places: new Map(places), failure }
}

/** Begins a reader: with the rows after these heads. A conflict if it has begun. */
export function beginCursors(
  { kysely }: CursorDatabase,
  sink: string,
  heads: readonly StreamHead[],
  { leaves, at }: { readonly leaves: number; readonly at: number },
): readonly LedgerStatement[] {
  const common = { sink, at: timestamp(at), failed_at: null, error: null }
  const rows = [{ stream: WHOLE, head: leaves }, ...heads]
  return rows.map(({ stream, head }) =>
    upkeep(
      kysely
        .insertInto('export_cursors')
        .values({ ...common, stream, seq: head })
        .onConflict((conflict) => conflict.doNothing()),
    ),
  )
}

/** A move of a cursor. `from`: null if the stream has none yet. */
export interface CursorMove {
  readonly stream: string
  readonly from: number | null
  readonly to: number
}

/** Moves cursors, if they stand where they stood: else the unit is a conflict. */
export const moveCursors = (
  { kysely }: CursorDatabase,
  sink: string,
  moves: readonly CursorMove[],
  at: number,
): readonly LedgerStatement[] =>
  moves.map(({ stream, from, to }) =>
    upkeep(
      from === null
        ? kysely
            .insertInto('export_cursors')
            .values({ sink, stream, seq: to, at: timestamp(at) })
            .onConflict((conflict) => conflict.doNothing())
        : kysely
            .updateTable('export_cursors')
            .set({ seq: to, at: timestamp(at) })
            .where('sink', '=', sink)
            .where('stream', '=', stream)
            .where('seq', '=', from),
    ),
  )

/** Moves the leaves of the archive that a reader has behind it, likewise. */
export const moveLeaves = (
  database: CursorDatabase,
  sink: string,
  move: Omit<CursorMove, 'stream'>,
  at: number,
): readonly LedgerStatement[] => moveCursors(database, sink, [{ stream: WHOLE, ...move }], at)

/** Says since when a reader fails, and why; null: it does not any more. */
export function noteCursorFailure(
  { kysely }: CursorDatabase,
  sink: string,
  failure: SinkCursors['failure'],
): LedgerStatement {
  const error = failure?.error.slice(0, MAX_ERROR).toWellFormed().replaceAll('\0', '\ufffd') ?? null
  const columns = { failed_at: failure?.since ?? null, error }
  return upkeep(
    kysely.updateTable('export_cursors').set(columns).where('sink', '=', sink).where('stream', '=', WHOLE),
  )
}

/** Has a reader take a stream again from a row on, out of the archive too. */
export function rewindCursor(
  { kysely }: CursorDatabase,
  sink: string,
  { stream, seq }: { readonly stream: string; readonly seq: number },
  at: number,
): readonly LedgerStatement[] {
  const moved = { seq: seq - 1, at: timestamp(at) }
  const whole = { seq: 0, failed_at: null, error: null }
  return [
    upkeep(
      kysely.updateTable('export_cursors').set(whole).where('sink', '=', sink).where('stream', '=', WHOLE),
    ),
    upkeep(
      kysely
        .insertInto('export_cursors')
        .values({ sink, stream, ...moved })
        .onConflict((conflict) => conflict.columns(['sink', 'stream']).doUpdateSet(moved)),
    ),
  ]
}

// Nobody's authority rests on a cursor.
const upkeep = (query: Compilable): LedgerStatement => ({
  ...statementOf(query.compile(), 1),
  beside: 'upkeep',
})
