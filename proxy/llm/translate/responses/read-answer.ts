import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { faultOfError } from '../ends.ts'
import type { ServerEvent } from '../events.ts'
import type { AnswerEnd, AnswerEvent, AnswerPart, AnswerUsage } from '../model/answer.ts'
import { readLogprobs } from '../model/logprobs.ts'
import type { AnswerMeans, AnswerReader } from '../model/reader.ts'
import { countOf } from '../model/usage.ts'
import { PartSequencer } from '../sequencer.ts'

const MAX_NAME = 256

/** Reads the events of a Responses stream (openai, ResponseStreamEvent) as they come. */
export class ResponsesAnswerReader implements AnswerReader {
  readonly canEnd = false
  readonly #reading: AnswerMeans
  readonly #out: AnswerEvent[] = []
  readonly #parts = new PartSequencer(this.#out)
  /** The parts whose text has come in pieces. */
  readonly #streamed = new Set<string>()
  #isRefused = false
  #isOver = false

  constructor(reading: AnswerMeans) {
    this.#reading = reading
  }

  get kept(): number {
    return this.#parts.kept
  }

  add({ name, data }: ServerEvent): readonly AnswerEvent[] {
    if (this.#isOver || data.trim() === '[DONE]') return []
    let event: unknown
    try {
      event = JSON.parse(data)
    } catch {
      return this.#broken('an event is no JSON')
    }
    return isObject(event) ? this.#read({ type: name, ...event }) : this.#broken('an event is no JSON object')
  }

  end(): readonly AnswerEvent[] {
    return this.#isOver ? [] : this.#broken('the stream ended before its response did')
  }

  document(text: string): readonly AnswerEvent[] {
    const response: unknown = JSON.parse(text)
    if (!isObject(response) || !Array.isArray(response.output))
      return this.#broken('the answer is no response')
    const events = [...this.#read({ type: 'response.created', response })]
    for (const [output_index, item] of response.output.entries()) {
      if (this.#isOver) return events
      events.push(...this.#read({ type: 'response.output_item.added', output_index, item }))
      events.push(...this.#read({ type: 'response.output_item.done', output_index, item }))
    }
    return [
      ...events,
      ...this.#read({ type: `response.${String(response.status)}`, response }),
      ...this.end(),
    ]
  }

  #read(event: UnknownRecord): readonly AnswerEvent[] {
    const fault = this.#faultOf(event)
    return fault === null ? this.#out.splice(0) : this.#broken(fault)
  }

  #broken(why: string): readonly AnswerEvent[] {
    this.#isOver = true
    return [...this.#out.splice(0), { kind: 'broken', why }]
  }

  #faultOf(event: UnknownRecord): string | null {
    const { type, response, item, delta, logprobs, output_index: index, content_index: content = 0 } = event
    const key = `${String(index)}`
    if (type === 'response.created') return this.#start(response)
    if (type === 'response.output_item.added') return this.#openItem(key, item)
    if (type === 'response.output_item.done') return this.#closeItem(key, item)
    if (type === 'response.output_text.delta')
      return this.#text(`${key}.${String(content)}`, 'text', delta, logprobs)
    if (type === 'response.refusal.delta') return this.#text(`${key}.${String(content)}`, 'refusal', delta)
    if (type === 'response.function_call_arguments.delta' || type === 'response.reasoning_summary_text.delta')
      return this.#piece(key, delta)
    if (type === 'response.completed' || type === 'response.incomplete') return this.#finish(response)
    // Others repeat what these have said, or say that the answer lives.
    const isFailure = type === 'error' || type === 'response.failed' || type === 'response.cancelled'
    return isFailure ? faultOfError(isObject(response) ? response.error : (event.error ?? event)) : null
  }

  #start(response: unknown): string | null {
    if (!isObject(response) || typeof response.id !== 'string') return 'the response has no id'
    this.#out.push({ kind: 'start', id: response.id.slice(0, MAX_NAME) })
    return null
  }

  #openItem(key: string, item: unknown): string | null {
    if (!isObject(item)) return 'an item is none'
    if (item.type === 'message') return null
    if (item.type === 'reasoning') this.#parts.open(key, { kind: 'reasoning' })
    else if (item.type !== 'function_call') return 'the answer has an item that nobody asked for'
    else {
      const part = callPart(item)
      if (part === null) return 'a call has no name or id'
      this.#parts.open(key, part)
    }
    return null
  }

  #text(key: string, kind: 'text' | 'refusal', delta: unknown, logprobs?: unknown): null {
    if (kind === 'refusal') this.#isRefused = true
    if (!this.#parts.has(key)) this.#parts.open(key, { kind })
    this.#piece(key, delta, logprobs)
    return null
  }

  #piece(key: string, delta: unknown, logprobs?: unknown): string | null {
    if (!this.#parts.has(key)) return 'a piece came for no open item'
    this.#streamed.add(key)
    this.#parts.add(key, typeof delta === 'string' ? delta : '', readLogprobs(logprobs))
    return null
  }

  /** The item says all of itself once more: what did not come in pieces is taken from it. */
  #closeItem(key: string, item: unknown): string | null {
    if (!isObject(item)) return 'an item is none'
    if (item.type === 'message') return this.#closeMessage(key, item)
    if (!this.#parts.has(key)) return 'an item ended that was not open'
    if (item.type === 'reasoning') {
      if (!this.#streamed.has(key)) this.#parts.add(key, summaryOf(item))
      const { id, status, ...exact } = item
      this.#parts.close(key, typeof item.encrypted_content === 'string' ? this.#reading.seal([exact]) : null)
      return null
    }
    if (!this.#streamed.has(key) && typeof item.arguments === 'string') this.#parts.add(key, item.arguments)
    this.#parts.close(key)
    return null
  }

  #closeMessage(key: string, item: UnknownRecord): null {
    const contents = Array.isArray(item.content) ? (item.content as readonly unknown[]) : []
    for (const [index, content] of contents.entries()) {
      const place = `${key}.${index}`
      if (!isObject(content)) continue
      const isRefusal = content.type === 'refusal'
      const whole = isRefusal ? content.refusal : content.text
      if (!this.#streamed.has(place))
        this.#text(place, isRefusal ? 'refusal' : 'text', whole, content.logprobs)
      this.#parts.close(place)
    }
    return null
  }

  #finish(response: unknown): string | null {
    const { status, incomplete_details: details, usage } = isObject(response) ? response : {}
    const why = isObject(details) ? details.reason : null
    const end = status === 'completed' ? this.#completed() : INCOMPLETE[String(why)]
    if (end === undefined) return 'the response ended for a reason that cannot be told'
    this.#parts.finish()
    this.#isOver = true
    this.#out.push({ kind: 'usage', usage: usageOf(usage) }, { kind: 'end', reason: end })
    return null
  }

  #completed(): AnswerEnd {
    if (this.#parts.calls > 0) return 'calls'
    return this.#isRefused ? 'refusal' : 'done'
  }
}

const INCOMPLETE: Readonly<Record<string, AnswerEnd>> = {
  max_output_tokens: 'max_tokens',
  content_filter: 'refusal',
}

function callPart({ call_id: id, name }: UnknownRecord): AnswerPart | null {
  if (typeof id !== 'string' || typeof name !== 'string') return null
  return id.length > MAX_NAME || name.length > MAX_NAME ? null : { kind: 'call', id, name }
}

const summaryOf = ({ summary }: UnknownRecord): string =>
  (Array.isArray(summary) ? (summary as readonly unknown[]) : [])
    .map((part) => (isObject(part) && typeof part.text === 'string' ? part.text : ''))
    .join('\n\n')

function usageOf(usage: unknown): AnswerUsage {
  if (!isObject(usage)) return {}
  const { input_tokens_details: read, output_tokens_details: written } = usage
  const [reading, writing] = [isObject(read) ? read : {}, isObject(written) ? written : {}]
  return {
    ...countOf('prompt', usage.input_tokens),
    ...countOf('output', usage.output_tokens),
    ...countOf('cached', reading.cached_tokens),
    ...countOf('written', reading.cache_write_tokens),
    ...countOf('reasoning', writing.reasoning_tokens),
  }
}
