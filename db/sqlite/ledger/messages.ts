import type { SealedRow } from '../../ledger/record/entry.ts'
import type { OpenDecision } from '../../ledger/record/writer.ts'
import type { AuditSchema } from './form/schema.ts'
import type { PackedBatch, PackedResults } from './packing.ts'

export interface WriterOptions {
  readonly file: string
  readonly schema: AuditSchema
}

/** A message to the writer's thread. Answered in the order of asking; `close` by the thread's end. */
export type ToWriter =
  | { readonly kind: 'write'; readonly batch: PackedBatch }
  | { readonly kind: 'open-decisions' }
  | { readonly kind: 'close' }

/** `refused`: it could not start. `failed`: the next request may go through. `poisoned`: none will. */
export type FromWriter =
  | { readonly kind: 'ready'; readonly head: SealedRow | null }
  | { readonly kind: 'refused' | 'failed' | 'poisoned'; readonly message: string }
  | { readonly kind: 'written'; readonly results: PackedResults }
  | { readonly kind: 'open-decisions'; readonly decisions: readonly OpenDecision[] }
