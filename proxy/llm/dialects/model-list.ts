import { isObject } from '../../../db/support/json.ts'
import type { ListedModel } from './dialect.ts'

/**
 * Reads `{"data": [{"id": …}]}`, and what imitators send in its place: `models`, a bare list, names alone, or
 * null. Leaves out the entries that name nothing. Throws if the answer has no list.
 */
export function parseModelList(answer: unknown): readonly ListedModel[] {
  const list = listIn(answer)
  if (!Array.isArray(list)) throw new Error('the model list has no data')
  return list.flatMap(parseModel)
}

function listIn(answer: unknown): unknown {
  if (!isObject(answer)) return answer
  const { data, models } = answer
  if (Array.isArray(data)) return data
  return models ?? (data === null ? [] : undefined)
}

function parseModel(entry: unknown): readonly ListedModel[] {
  if (typeof entry === 'string') return entry === '' ? [] : [{ id: entry, name: entry, created: 0 }]
  if (!isObject(entry)) return []
  const { display_name: name, created, created_at: createdAt } = entry
  const id = [entry.id, entry.model, entry.name, entry.slug].find(
    (text): text is string => typeof text === 'string' && text !== '',
  )
  if (id === undefined) return []
  return [
    {
      id,
      name: typeof name === 'string' && name !== '' ? name : id,
      created: secondsOf(created ?? createdAt),
    },
  ]
}

/** OpenAI states seconds, Anthropic a date. */
function secondsOf(value: unknown): number {
  const seconds = typeof value === 'string' ? Math.floor(Date.parse(value) / 1000) : value
  return typeof seconds === 'number' && Number.isSafeInteger(seconds) && seconds >= 0 ? seconds : 0
}
