import type { StoredRow } from '../record/leaf.ts'

/** A row by its place: the order of the rows of all streams, and of the tree's leaves. */
export interface PlacedLeaf {
  readonly place: number
  readonly stream: string
  readonly seq: number
  readonly principal_id: string | null
  readonly leaf: string
}

export type PlacedRow = StoredRow & { readonly place: number }

/** An engine's reading of the rows as leaves of a tree. Places only grow, and may have gaps. */
export interface TreeRows {
  /**
   * The hashes after a place, at most `most`, as far as no row can come in between; and the place of the
   * last, or `after`.
   */
  readonly hashes: (
    after: number,
    most: number,
  ) => Promise<{ readonly hashes: Buffer; readonly place: number }>
  /** The rows of a request, in their order, at most 16. */
  readonly ofRequest: (requestId: string) => Promise<readonly PlacedLeaf[]>
  /** The place of a row; null if there is none. */
  readonly placeOf: (row: Pick<StoredRow, 'stream' | 'seq'>) => Promise<number | null>
  /** Counts the rows between two places, both exclusive; `before` may be after the last one. */
  readonly between: (after: number, before: number) => Promise<number>
  /** The leaves after a place, but for the first `skip` of them. */
  readonly leaves: (after: number, skip: number, most: number) => Promise<readonly string[]>
  /** The whole rows after a place. */
  readonly stored: (after: number, most: number) => Promise<readonly PlacedRow[]>
  /** The place of the first row recorded at or after an instant (RFC 3339); null if there is none. */
  readonly firstSince: (instant: string) => Promise<number | null>
}

/** The rows of one request that are read. A call has two. */
export const MAX_ROWS_PER_REQUEST = 16

/** The error of a segment whose file is not there, or is another one than was archived. */
export class UnreadableSegment extends Error {
  readonly reason = 'unreadable_segment'
}

/** The same as a thread tells it; null if it tells another. */
export const unreadableSegment = (reason: string, message: string): UnreadableSegment | null =>
  reason === 'unreadable_segment' ? new UnreadableSegment(message) : null
