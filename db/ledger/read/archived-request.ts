import { MAX_ROWS_PER_REQUEST } from '../tree/rows.ts'
import { ArchivedPage } from './archived-page.ts'
import type { RowFilter } from './find.ts'
import { tooManySearches } from './segment-pool.ts'
import type { ArchivedRow } from './segment-thread.ts'
import { type ArchivedDatabase, segmentsFor } from './segments-for.ts'

interface ArchivedRequest {
  readonly id: string
  /** The principal whose rows alone may be seen; null: all. */
  readonly principal: string | null
  readonly signal: AbortSignal
}

/** The searches for requests that are under way at once: each holds a file open. */
const MAX_REQUEST_SEARCHES = 32
let requestSearches = 0

/**
 * Finds the rows of a request that are archived, in their order, at most 16. Rejects with a {@link LedgerError}
 * `busy` if the principal, or all, have too many searches under way.
 */
export async function archivedRequest(
  db: ArchivedDatabase,
  folder: string | null,
  { id, principal, signal }: ArchivedRequest,
): Promise<{ readonly rows: readonly ArchivedRow[]; readonly unreadable: readonly string[] }> {
  const filter: RowFilter = { request_id: id, order: 'asc', ...(principal !== null && { principal }) }
  const segments = await segmentsFor(db, filter)
  if (requestSearches >= MAX_REQUEST_SEARCHES) throw tooManySearches()
  const page = new ArchivedPage(segments, folder, filter, MAX_ROWS_PER_REQUEST)
  const rows: ArchivedRow[] = []
  requestSearches += 1
  try {
    for await (const row of page.rows(noRows(), signal)) rows.push(row)
  } finally {
    requestSearches -= 1
  }
  return { rows, unreadable: page.part()?.unreadable ?? [] }
}

async function* noRows(): AsyncGenerator<never> {}
