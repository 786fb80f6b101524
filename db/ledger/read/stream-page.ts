import { setImmediate as nextTurn } from 'node:timers/promises'
import type { Kysely } from 'kysely'
import type { DatabaseSchema } from '../../schema.ts'
import { exportLine, type ReadableNames, SHOWN_COLUMNS } from '../record/leaf.ts'
import { ROWS_PER_READ } from './find.ts'
import { userNameFinder } from './names.ts'

/** Asks for the rows of one stream after a place. */
export interface StreamPageQuestion {
  readonly stream: string
  readonly after: number
  /** True: with the readable names of users. */
  readonly names: boolean
}

/** The rows of a stream that follow a place without a gap. */
export interface StreamPage {
  /** Lines as `exportLine` makes them, the first one of the row after the place. */
  readonly lines: readonly string[]
  /** The first row behind a gap, at which the page ends; null: there is no gap. */
  readonly gap: number | null
}

/** The rows, and the bytes, that a page has at most. A page has one row whatever its length. */
export const [MAX_PAGE_ROWS, MAX_PAGE_BYTES] = [500, 1_048_576]

/** Writes a {@link StreamPage}: its lines, and a last one about the gap. Does NOT verify rows. */
export async function* streamPageTexts(
  db: Kysely<DatabaseSchema>,
  { stream, after, names }: StreamPageQuestion,
  signal: AbortSignal,
): AsyncGenerator<string> {
  const namesOf = names ? userNameFinder(db) : withoutNames
  const last = after + MAX_PAGE_ROWS
  for (let [seq, bytes] = [after, 0]; seq < last; ) {
    const most = Math.min(ROWS_PER_READ, last - seq)
    const rows = await db
      .selectFrom('audit_log')
      .select([...SHOWN_COLUMNS, 'leaf'])
      .where('stream', '=', stream)
      .where('seq', '>', seq)
      .orderBy('seq')
      .limit(most)
      .execute()
    for (const row of rows) {
      if (row.seq !== seq + 1) return yield endOf(row.seq)
      const line = `${exportLine(row, await namesOf(row))}\n`
      bytes += Buffer.byteLength(line)
      if (bytes > MAX_PAGE_BYTES && seq > after) return yield endOf(null)
      yield line
      seq += 1
    }
    if (rows.length < most) break
    await nextTurn(undefined, { signal })
  }
  yield endOf(null)
}

const withoutNames = (): ReadableNames => ({})

const endOf = (gap: number | null): string => JSON.stringify({ gap })

export function readStreamPage(text: string): StreamPage {
  const lines = text.split('\n')
  // Proven by endOf.
  const { gap } = JSON.parse(lines.pop() ?? '') as Pick<StreamPage, 'gap'>
  return { lines, gap }
}
