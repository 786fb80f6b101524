/** Awaited after each page, so that others get their turn: SQLite answers at once. */
export type Pause = () => Promise<void>

/** Rows that are read at once. */
const PAGE = 100

/**
 * Reads a list page by page, at most `most` rows of those that are `wanted`. `read` gets the row that the page before has ended with, and
 * the greatest number of rows. The list is of no one instant: what changes while it is read is in it as it was
 * before or as it is after.
 */
export async function allPages<Row>(
  read: (after: Row | undefined, limit: number) => Promise<readonly Row[]>,
  pause: Pause,
  most = Number.POSITIVE_INFINITY,
  wanted?: (row: Row) => boolean,
): Promise<Row[]> {
  const all: Row[] = []
  let last: Row | undefined
  for (;;) {
    const limit = wanted ? PAGE : Math.min(PAGE, most - all.length)
    const page = await read(last, limit)
    last = page.at(-1)
    for (const row of page) if (all.length < most && (wanted?.(row) ?? true)) all.push(row)
    if (page.length < limit || all.length === most) return all
    await pause()
  }
}

/** For a list that is short, or whose reader may hold up everybody. */
export const noPause: Pause = () => Promise.resolve()

/** Cuts a list into parts of at most `size`, in order. None where it is empty. */
export function portionsOf<Item>(items: readonly Item[], size: number): readonly (readonly Item[])[] {
  const portions: (readonly Item[])[] = []
  for (let from = 0; from < items.length; from += size) portions.push(items.slice(from, from + size))
  return portions
}
