import { isObject } from '../../db/support/json.ts'

/** A piece of a text that a stream tells over several events. */
export interface DeltaText {
  /** Names the text: pieces of the same one are joined. */
  readonly block: string
  readonly text: string
}

/** The members whose texts are whole in each event. */
const WHOLE = new Set(['type', 'role', 'id', 'object', 'status', 'finish_reason', 'stop_reason', 'call_id'])
/** The members by which events say which text they go on with. */
const PLACES = ['index', 'output_index', 'content_index', 'summary_index', 'item_id', 'call_id']
const MAX_DEPTH = 12

/**
 * Yields the pieces of texts in an event of a stream, whatever they are of (text, thinking, arguments of tools) and
 * in whatever API: all strings within a `delta`, and `text` of choices.
 */
export function* deltaTexts(event: unknown): Generator<DeltaText> {
  yield* textsIn(event, '', false, 0)
}

function* textsIn(value: unknown, block: string, isDelta: boolean, depth: number): Generator<DeltaText> {
  if (depth > MAX_DEPTH) return
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries())
      yield* textsIn(item, placed(block, item, index), isDelta, depth + 1)
  } else if (isObject(value)) {
    const own = depth === 0 ? placed('', value, 0) : block
    for (const [name, inner] of Object.entries(value)) {
      if (WHOLE.has(name) && typeof inner === 'string') continue
      const within = isDelta || name === 'delta' || (name === 'text' && own.includes('choices'))
      yield* textsIn(inner, `${own}.${name}`, within, depth + 1)
    }
  } else if (isDelta && typeof value === 'string' && value !== '') yield { block, text: value }
}

/** Names an item of a list by the place that it states, else by its own. */
function placed(block: string, item: unknown, index: number): string {
  if (!isObject(item)) return `${block}[${index}]`
  const stated = PLACES.flatMap((name) => {
    const place = item[name]
    return typeof place === 'number' || typeof place === 'string' ? [`${name}=${place}`] : []
  })
  return `${block}[${stated.length === 0 ? index : stated.join()}]`
}

/** The types of events after which a text, or all of them, goes on no more. */
const ENDS = /(?:^|[._])(?:stop|done|completed|incomplete|failed|end)$/

/** Tells whether an event says that texts have ended. */
export function endsTexts(event: unknown): boolean {
  if (!isObject(event)) return false
  const { type, choices } = event
  if (typeof type === 'string' && ENDS.test(type)) return true
  return (
    Array.isArray(choices) &&
    choices.some((choice: unknown) => isObject(choice) && typeof choice.finish_reason === 'string')
  )
}
