import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type Kysely, sql } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { parseLedgerCursor } from '../../support/cursor.ts'
import { timestamp } from '../../support/statement.ts'
import { listSegments, type StoredSegment, segmentsIn } from '../tree/segments.ts'
import type { RowFilter } from './find.ts'

export type ArchivedDatabase = Kysely<DatabaseSchema>

/** The longest time between the rows of one request that are looked for. ms. */
const MAX_REQUEST_MS = 86_400_000
/** The most that a clock is set back between two of them. ms. */
const MAX_STEP_MS = 3_600_000
/** The last instant that has four digits of a year. ms since the epoch. */
const MAX_INSTANT = 253_402_300_799_999

/** The rows of a request lie near the instant that its id begins with (proxy/http/arrival.ts). */
function windowOf(filter: RowFilter): readonly [since: string, until: string] {
  const { request_id: id, since = 0, until = MAX_INSTANT } = filter
  const [, hex] = /^req_([0-9a-f]{12})/.exec(id ?? '') ?? []
  const at = hex === undefined ? null : Math.min(Number.parseInt(hex, 16), MAX_INSTANT - MAX_REQUEST_MS)
  const from = timestamp(at === null ? since : Math.max(since, at - MAX_STEP_MS))
  const to = timestamp(at === null ? until : Math.min(until, at + MAX_REQUEST_MS))
  const edge = edgeOfCursor(filter)
  return filter.order === 'asc'
    ? [edge && edge > from ? edge : from, to]
    : [from, edge && edge < to ? edge : to]
}

export const edgeOfCursor = ({ cursor }: RowFilter): string | null =>
  cursor === undefined ? null : parseLedgerCursor(cursor).recorded_at

/** The segments that may hold rows which fit, by their times and their indexes, oldest first. */
export async function segmentsFor(
  db: ArchivedDatabase,
  filter: RowFilter,
): Promise<readonly StoredSegment[]> {
  if (filter.archive === 'no') return []
  const [since, until] = windowOf(filter)
  const lists = (column: 'principals' | 'actions', value: string | undefined) =>
    value === undefined
      ? sql<boolean>`1 = 1`
      : sql<boolean>`(${sql.ref(column)} is null or replace(${sql.ref(column)}, ${JSON.stringify(value)}, '') <> ${sql.ref(column)})`
  return segmentsIn(db)
    .where('until', '>=', since)
    .where('since', '<=', until)
    .where(lists('principals', filter.principal))
    .where(lists('actions', filter.action))
    .orderBy('first')
    .execute()
}

/** The last segments that lie in a folder without a gap, each as long as it was, oldest first. */
export async function readableSegments(
  db: ArchivedDatabase,
  folder: string,
): Promise<readonly StoredSegment[]> {
  const found: StoredSegment[] = []
  if (folder === '') return found
  for (const segment of (await listSegments(db)).toReversed()) {
    const file = await stat(join(folder, segment.file)).catch(() => null)
    if (file?.size !== segment.bytes) break
    found.unshift(segment)
  }
  return found
}
