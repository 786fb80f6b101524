import type { Sealed } from '../../ledger/record/entry.ts'
import type { OpenDecision } from '../../ledger/record/writer.ts'
import type { Fate } from '../ledger/messages.ts'

/** What a worker sends to the process above it. The body is a value, or as it says. */
export const UP = {
  /** A `PackedBatch`. Answered by `written` or `failed`. */
  write: 1,
  /** Asks what workers that are gone, and earlier runs, have left open. Answered by `unfinished` or `failed`. */
  unfinished: 2,
  /** Waits for the lock that one worker at a time holds. Answered by `locked`. */
  lock: 3,
  unlock: 4,
  /** A {@link Notice} for all other workers. */
  tell: 5,
} as const

/** What the process above sends to a worker. */
export const DOWN = {
  /** The first of all: a {@link Welcome}. */
  opened: 1,
  /** A `PackedResults`. */
  written: 2,
  unfinished: 3,
  /** The question was not answered: the sentence that says why. */
  failed: 4,
  locked: 5,
  /** A {@link Notice} of another worker. */
  told: 6,
  /** True from now on where this worker does what one alone does. */
  leads: 7,
  /** The ledger is never written again: the sentence that says why. */
  lost: 8,
} as const

export interface Welcome {
  readonly head: Sealed | null
}

export interface Notice {
  readonly topic: string
  readonly text: string
}

/** A worker's batch on its way to the thread: a `PackedBatch`, serialised. */
export interface Part {
  readonly owner: number
  readonly batch: Uint8Array<ArrayBuffer>
}

/** A message to the thread that writes for all workers. */
export type ToShared =
  | { readonly kind: 'write'; readonly parts: readonly Part[] }
  | { readonly kind: 'unfinished'; readonly owner: number }
  | { readonly kind: 'gone'; readonly owner: number }
  | { readonly kind: 'close' }

/** A message from that thread. */
export type FromShared =
  | Fate
  /** `PackedResults`, serialised, one for each part. */
  | { readonly kind: 'written'; readonly results: readonly Uint8Array<ArrayBuffer>[] }
  | { readonly kind: 'unfinished'; readonly decisions: readonly OpenDecision[] }
  | { readonly kind: 'noted' }
