import { isObject } from '../../../db/support/json.ts'
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

/** The code by which clients of OpenAI know a context that is full. Those of Anthropic know the sentence. */
export const CONTEXT_FULL = 'context_length_exceeded'
export const FULL_SENTENCE = 'prompt is too long'

/** The sentences of Anthropic, Bedrock, vLLM and DeepSeek, llama.cpp and Ollama, and Gemini. */
const SAYS_FULL =
  /prompt is too long|input is too long|maximum (?:context|model) length|exceeds? the (?:available )?context (?:size|length|window|limit)|exceed context limit|input token count .{0,40}exceeds/i
/** A longer message is not searched. Characters. */
const MAX_SEARCHED = 16_384

/** Tells if an error says, by its code or message, that the model's context is full. */
export function saysContextFull(error: unknown): boolean {
  if (!isObject(error)) return false
  const { code, message } = error
  if (code === CONTEXT_FULL) return true
  return typeof message === 'string' && SAYS_FULL.test(message.slice(0, MAX_SEARCHED))
}

const IS_FULL = 'the context of the model is full'

/** Returns the fault of an answer that is an error, or ends with one. */
export const faultOfError = (error: unknown): string =>
  saysContextFull(error) ? IS_FULL : 'the provider reported an error'

/** Returns what the caller is told of an answer that is broken by a fault; null: by a call that is not whole. */
export const failureTold = (fault: string | null) =>
  fault === IS_FULL
    ? { type: 'invalid_request_error', code: CONTEXT_FULL, message: `${FULL_SENTENCE}: ${IS_FULL}.` }
    : {
        type: 'api_error',
        code: null,
        message: 'The provider broke off in the middle of its answer. The answer is not complete.',
      }
