/** A checkpoint on its way to an anchor. */
export interface PendingCheckpoint {
  readonly origin: string
  readonly size: number
  readonly root: Buffer
  /** The signed note. */
  readonly note: string
  /** The signed text of the note. */
  readonly text: string
  /** The size that the anchor has, as far as it is known here. */
  readonly has: number
  /** Proves that this checkpoint's tree begins with the one of a smaller size. */
  readonly consistency: (from: number) => Promise<readonly Buffer[]>
}

/** A keeper of checkpoints that the owner of the database cannot change (docs/ledger.md#anchors). */
export interface CheckpointAnchor {
  /** `file:…`, `url:…`, `witness:…` or `timestamp:…`. */
  readonly name: string
  /** The least time between two checkpoints. ms. Absent: each is handed over. */
  readonly everyMs?: number
  /**
   * Hands a checkpoint over; resolves when it is kept, with the anchor's statement: the line of a
   * cosignature, a time stamp as base64, or null. Rejects with one sentence.
   */
  readonly keep: (checkpoint: PendingCheckpoint, signal: AbortSignal) => Promise<string | null>
}

/** An anchor has a longer log than this one: rows were lost, or an older copy was put in their place. */
export class RollbackError extends Error {
  override readonly name = 'Rollback'
}
