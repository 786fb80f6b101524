/** The end of a page, in a list that is newest first. */
export interface ListCursor {
  readonly createdAt: string
  readonly id: string
}

export interface LedgerCursor {
  readonly recorded_at: string
  readonly stream: string
  readonly seq: number
}

export const printListCursor = ({ createdAt, id }: ListCursor): string => printParts([createdAt, id])

export interface ListPage<Item> {
  readonly items: readonly Item[]
  /** Null: there is no next page. */
  readonly nextCursor: string | null
}

/** Cuts a page of a list that is newest first. `found`: one more than `limit` if there is more; undefined: all. */
export function listPageOf<Item extends { readonly created_at: string }>(
  found: readonly Item[],
  limit: number | undefined,
  idOf: (item: Item) => string,
): ListPage<Item> {
  const items = found.slice(0, limit)
  const last = items.at(-1)
  const more = last !== undefined && items.length < found.length
  return { items, nextCursor: more ? printListCursor({ createdAt: last.created_at, id: idOf(last) }) : null }
}

/** Reads a cursor that a caller has brought back; null if it is not one of a list. */
export function parseListCursor(text: string): ListCursor | null {
  const [createdAt, id, ...rest] = partsOf(text)
  if (typeof createdAt !== 'string' || typeof id !== 'string' || rest.length > 0) return null
  return { createdAt, id }
}

export const printLedgerCursor = ({ recorded_at: at, stream, seq }: LedgerCursor): string =>
  printParts([at, stream, seq])

/** Reads a cursor that a caller has brought back. Throws a RangeError if it is not one of the ledger. */
export function parseLedgerCursor(text: string): LedgerCursor {
  const [at, stream, seq] = partsOf(text)
  if (typeof at !== 'string' || typeof stream !== 'string' || !Number.isSafeInteger(seq))
    throw new RangeError('cursor is not one of this ledger')
  return { recorded_at: at, stream, seq: Number(seq) }
}

/** Prints the texts that a list goes on after. */
export const printTextsCursor = (texts: readonly string[]): string => printParts(texts)

/** Reads a cursor of so many texts; null if it is none. */
export function parseTextsCursor(text: string, count: number): readonly string[] | null {
  const parts = partsOf(text)
  const texts = parts.filter((part) => typeof part === 'string')
  return texts.length === count && parts.length === count ? texts : null
}

const printParts = (parts: readonly (string | number)[]): string =>
  Buffer.from(JSON.stringify(parts)).toString('base64url')

/** None if the text has no such form. Not signed: a made-up one only chooses where a page starts. */
function partsOf(text: string): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(text, 'base64url').toString())
    return Array.isArray(parts) ? parts : []
  } catch (error) {
    if (error instanceof SyntaxError) return []
    throw error
  }
}
