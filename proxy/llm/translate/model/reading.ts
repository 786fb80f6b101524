import type { TranslationNotes } from '../losses.ts'
import type { ToolNames } from '../names.ts'

/** The means of every reader of a request. */
export interface RequestReading {
  readonly notes: TranslationNotes
  readonly names: ToolNames
  /** Parses JSON text within the body. Throws SyntaxError. */
  readonly parse: (text: string) => unknown
  /** Opens reasoning that the caller brings back; null: it is not the target's own. */
  readonly openReasoning: (sealed: unknown) => readonly unknown[] | null
}
