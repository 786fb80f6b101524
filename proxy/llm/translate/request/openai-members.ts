import type { UnknownRecord } from '../../../../db/support/json.ts'
import type { TranslationNotes } from '../losses.ts'
import type { ModelRequest } from '../model/request.ts'

interface OpenaiForms {
  readonly tool: (tool: ModelRequest['tools'][number]) => UnknownRecord
  /** Returns the choice of one tool. */
  readonly named: (name: string) => UnknownRecord
}

/** Writes the members that both of OpenAI's wires have. Notes what neither can tell. */
export function writeOpenaiMembers(
  request: ModelRequest,
  { tool, named }: OpenaiForms,
  notes: TranslationNotes,
): UnknownRecord {
  const { tools, choice, parallelCalls, maxTokens, temperature, topP } = request
  if (request.isPrefilled) notes.lose('prefill', 'messages')
  if (maxTokens !== null && maxTokens < 1) notes.never('max_tokens', 'max_tokens')
  return {
    ...(tools.length > 0 && { tools: tools.map(tool) }),
    ...(tools.length > 0 && choice && { tool_choice: choiceOf(choice, named) }),
    ...(tools.length > 0 && parallelCalls !== null && { parallel_tool_calls: parallelCalls }),
    ...(temperature !== null && { temperature }),
    ...(topP !== null && { top_p: topP }),
  }
}

function choiceOf(choice: NonNullable<ModelRequest['choice']>, named: OpenaiForms['named']): unknown {
  if (choice.kind === 'tool') return named(choice.name)
  return choice.kind === 'any' ? 'required' : choice.kind
}
