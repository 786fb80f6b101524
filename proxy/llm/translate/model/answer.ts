import type { TokenLogprob } from './logprobs.ts'

/** The reasons why a model ended. `window`: its context is full. */
export type AnswerEnd = 'done' | 'calls' | 'max_tokens' | 'window' | 'stop_word' | 'refusal'

/** Token counts. `prompt` holds what was read from the cache and what was written to it. Absent: not stated. */
export interface AnswerUsage {
  readonly prompt?: number
  readonly cached?: number
  readonly written?: number
  readonly output?: number
  readonly reasoning?: number
}

/** The parts of an answer, of which one is open at a time. */
export type AnswerPart =
  | { readonly kind: 'text' | 'refusal' | 'reasoning' }
  /** `name`: the target's name of the tool. */
  | { readonly kind: 'call'; readonly id: string; readonly name: string }

/** An answer as it comes, in no wire's words. An answer without `end` is broken. */
export type AnswerEvent =
  | { readonly kind: 'start'; readonly id: string }
  | { readonly kind: 'open'; readonly part: AnswerPart }
  /** The next piece of the open part: text, or of a call its arguments as JSON text. `logprobs`: of the text's tokens. */
  | { readonly kind: 'delta'; readonly text: string; readonly logprobs?: readonly TokenLogprob[] }
  /** `sealed`: of reasoning, what the caller is to bring back. */
  | { readonly kind: 'close'; readonly sealed?: string }
  | { readonly kind: 'usage'; readonly usage: AnswerUsage }
  /** `stopWord`: the one at which it ended, if it is known. */
  | { readonly kind: 'end'; readonly reason: AnswerEnd; readonly stopWord?: string }
  /** Nothing comes after it. */
  | { readonly kind: 'broken'; readonly why: string }
