import type { UnknownRecord } from '../../../../db/support/json.ts'
import type { LossName, TranslationNotes } from '../losses.ts'
import type { ExtraName, ExtraParameter, ModelRequest } from '../model/request.ts'

/** The loss that a parameter is where the target has none like it. */
const LOSS_OF_EXTRA: Readonly<Record<ExtraName, LossName>> = {
  seed: 'seed',
  frequency_penalty: 'penalties',
  presence_penalty: 'penalties',
  logit_bias: 'logit_bias',
  verbosity: 'verbosity',
  top_k: 'top_k',
  logprobs: 'logprobs',
  json_object: 'json_object',
}

/** Writes the parameters that a target has, each into members of its request. Notes the loss of others. */
export function writeExtras(
  { extras }: Pick<ModelRequest, 'extras'>,
  writers: Partial<Record<ExtraName, (value: unknown) => UnknownRecord>>,
  notes: TranslationNotes,
): UnknownRecord {
  const told: Record<string, unknown> = {}
  for (const { name, field, value } of extras) {
    const write = writers[name]
    if (write) Object.assign(told, write(value))
    else notes.lose(LOSS_OF_EXTRA[name], field)
  }
  return told
}

/** The parameters that an operator may have left out. */
export const DROPPABLE = [
  'temperature',
  'top_p',
  'stop',
  'effort',
  'parallel_tool_calls',
  'seed',
  'frequency_penalty',
  'presence_penalty',
  'logit_bias',
  'verbosity',
  'top_k',
  'logprobs',
] as const

export type DroppableName = (typeof DROPPABLE)[number]

/** Leaves out parameters that an operator has named, and notes those that were stated. */
export function withoutDropped(
  request: ModelRequest,
  drop: readonly DroppableName[],
  notes: TranslationNotes,
): ModelRequest {
  const out: ReadonlySet<string> = new Set(drop)
  const leave = <Value>(name: DroppableName, value: Value, none: Value): Value => {
    if (!out.has(name)) return value
    if (value !== none) notes.dropped.add(name)
    return none
  }
  const isKept = ({ name }: ExtraParameter): boolean => {
    if (out.has(name)) notes.dropped.add(name)
    return !out.has(name)
  }
  const stopWords = leave('stop', request.stopWords.length > 0, false) ? request.stopWords : []
  return {
    ...request,
    stopWords,
    temperature: leave('temperature', request.temperature, null),
    topP: leave('top_p', request.topP, null),
    effort: leave('effort', request.effort, null),
    parallelCalls: leave('parallel_tool_calls', request.parallelCalls, null),
    extras: request.extras.filter(isKept),
  }
}
