/** Awaited after each page, so that others get their turn: SQLite answers at once. */
export type PagePause = () => Promise<void>

/** Rows that are read at once. */
const PAGE = 100

/**
 * Reads a list page by page, at most `most` rows that are `wanted`; `sift` then keeps some of a page. `read`
 * gets the last row of the page before, and the greatest number of rows. A row that changes meanwhile is in
 * it as before or after.
 */
export async function allPages<Row>(
  read: (after: Row | undefined, limit: number) => Promise<readonly Row[]>,
  pause: PagePause,
  most = Number.POSITIVE_INFINITY,
  wanted?: (row: Row) => boolean,
  sift?: (rows: readonly Row[]) => Promise<readonly Row[]>,
): Promise<Row[]> {
  const all: Row[] = []
  let last: Row | undefined
  for (;;) {
    const limit = wanted || sift ? PAGE : Math.min(PAGE, most - all.length)
    const page = await read(last, limit)
    last = page.at(-1)
    const fitting = wanted ? page.filter(wanted) : page
    const kept = sift && fitting.length > 0 ? await sift(fitting) : fitting
    all.push(...kept.slice(0, most - all.length))
    if (page.length < limit || all.length === most) return all
    await pause()
  }
}

/** For a list that is short, or whose reader may hold up everybody. */
export const noPause: PagePause = () => Promise.resolve()

/** Cuts a list into parts of at most `size`, in order. None if it is empty. */
export function portionsOf<Item>(items: readonly Item[], size: number): readonly (readonly Item[])[] {
  const portions: (readonly Item[])[] = []
  for (let from = 0; from < items.length; from += size) portions.push(items.slice(from, from + size))
  return portions
}
