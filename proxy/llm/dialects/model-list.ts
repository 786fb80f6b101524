import { isObject } from '../../../db/support/json.ts'
import type { ListedModel } from './dialect.ts'

/** Reads `{"data": [{"id": …}]}`, the list of both vendors and their imitators. Throws if `data` is none. */
export function parseModelList(answer: unknown): readonly ListedModel[] {
  const data = isObject(answer) ? answer.data : null
  if (!Array.isArray(data)) throw new Error('the model list has no data')
  return data.flatMap(parseModel)
}

function parseModel(entry: unknown): readonly ListedModel[] {
  if (!isObject(entry)) return []
  const { id, display_name: name, created, created_at: createdAt } = entry
  if (typeof id !== 'string' || id === '') return []
  return [{ id, name: typeof name === 'string' ? name : id, created: secondsOf(created ?? createdAt) }]
}

/** OpenAI states seconds, Anthropic a date. */
function secondsOf(value: unknown): number {
  const seconds = typeof value === 'string' ? Math.floor(Date.parse(value) / 1000) : value
  return typeof seconds === 'number' && Number.isSafeInteger(seconds) && seconds >= 0 ? seconds : 0
}
