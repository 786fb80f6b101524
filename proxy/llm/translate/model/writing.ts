import type { ToolNames } from '../names.ts'

/** The means of every writer of an answer. */
export interface AnswerWriting {
  /** The id of the call here, which ids of the answer are made of. */
  readonly id: string
  /** The caller's own name of the model. */
  readonly model: string
  /** ms since the epoch. */
  readonly now: number
  readonly names: ToolNames
  readonly isStream: boolean
  /** True: a caller of Chat Completions has asked for the usage in a stream. */
  readonly includeUsage: boolean
  /** True: the caller is shown the model's reasoning as text. */
  readonly showReasoning: boolean
}
