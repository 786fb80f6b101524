import type { LedgerQuestion } from '../../ledger/read/reader.ts'

/** The start of the reader's thread. */
export interface ReaderOptions {
  readonly file: string
}

/** A message to the reader's thread. `ask` and `more` are answered with one piece each. */
export type ToReader =
  | { readonly kind: 'ask'; readonly id: number; readonly question: LedgerQuestion }
  | { readonly kind: 'more'; readonly id: number }
  /** Nobody waits for the answer any more. */
  | { readonly kind: 'end'; readonly id: number }

/** A message from the reader's thread. `done`: there are no more pieces. */
export type FromReader =
  | { readonly kind: 'piece'; readonly id: number; readonly bytes: Uint8Array<ArrayBuffer> }
  | { readonly kind: 'done'; readonly id: number }
  | { readonly kind: 'failed'; readonly id: number; readonly message: string }
