import type { Sealed } from '../../audit/entry.ts'
import type { OpenDecision } from '../../audit/writer.ts'
import type { PackedBatch, PackedResults } from './packing.ts'
import type { AuditSchema } from './schema.ts'

/** What the writer's thread is started with. */
export interface WriterOptions {
  readonly file: string
  readonly version: string
  readonly schema: AuditSchema
}

/** To the writer's thread. Answered in the order of asking; `close` by the thread's end. */
export type ToWriter =
  | { readonly kind: 'write'; readonly batch: PackedBatch }
  | { readonly kind: 'open-decisions' }
  | { readonly kind: 'close' }

/** From it. `refused`: it could not start. `failed`: this request, and the next may go through. `poisoned`: this and all others. */
export type FromWriter =
  | { readonly kind: 'ready'; readonly head: Sealed | null }
  | { readonly kind: 'written'; readonly results: PackedResults }
  | { readonly kind: 'open-decisions'; readonly decisions: readonly OpenDecision[] }
  | { readonly kind: 'refused' | 'failed' | 'poisoned'; readonly message: string }
