import type { AnswerEnd } from './model/answer.ts'

/** The stop reasons of Messages. Others break an answer: nobody can be told of them. */
export const END_OF_STOP_REASON: Readonly<Record<string, AnswerEnd>> = {
  end_turn: 'done',
  stop_sequence: 'stop_word',
  tool_use: 'calls',
  max_tokens: 'max_tokens',
  model_context_window_exceeded: 'window',
  refusal: 'refusal',
}

/** The stop reasons of Messages, back. */
export const STOP_REASON_OF_END: Readonly<Record<AnswerEnd, string>> = {
  done: 'end_turn',
  stop_word: 'stop_sequence',
  calls: 'tool_use',
  max_tokens: 'max_tokens',
  window: 'model_context_window_exceeded',
  refusal: 'refusal',
}

/** The finish reasons of Chat Completions. */
export const FINISH_OF_END: Readonly<Record<AnswerEnd, string>> = {
  done: 'stop',
  stop_word: 'stop',
  calls: 'tool_calls',
  max_tokens: 'length',
  window: 'length',
  refusal: 'content_filter',
}

/** Why a response is incomplete; null: it is complete. */
export const INCOMPLETE_OF_END: Readonly<Record<AnswerEnd, string | null>> = {
  done: null,
  stop_word: null,
  calls: null,
  max_tokens: 'max_output_tokens',
  window: 'max_output_tokens',
  refusal: 'content_filter',
}
