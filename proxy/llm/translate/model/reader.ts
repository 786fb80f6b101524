import type { ServerEvent } from '../events.ts'
import type { AnswerEvent } from './answer.ts'

/** The means of every reader of an answer. */
export interface AnswerMeans {
  /** Seals the target's own reasoning; null: it is too long. */
  readonly seal: (exact: readonly unknown[]) => string | null
  /** The stop words that the provider was told of. */
  readonly stopWords: readonly string[]
}

/** Reads an answer in no wire's words. Each throws RangeError for one that is too long. */
export interface AnswerReader {
  readonly add: (event: ServerEvent) => readonly AnswerEvent[]
  /** Characters that it keeps of the answer. */
  readonly kept: number
  /** True once the answer can end without another event: its usage alone is missing, if anything. */
  readonly canEnd: boolean
  /** The stream has ended. */
  readonly end: () => readonly AnswerEvent[]
  /** Reads an answer that is there whole. Throws SyntaxError. */
  readonly document: (text: string) => readonly AnswerEvent[]
}

/** Writes an answer in one wire's words. */
export interface AnswerWriter {
  /** Returns the text of the events that say the same. Throws RangeError for an answer that is too long. */
  readonly add: (event: AnswerEvent) => string
  /** Returns the whole answer; null: it is broken. */
  readonly document: () => Readonly<Record<string, unknown>> | null
  /** The event or comment that says only that the answer lives. */
  readonly ping: string
  /** True once its last event is written. */
  readonly isOver: boolean
  /** True once it is written whole. */
  readonly isWhole: boolean
}
