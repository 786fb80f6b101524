import type { UnknownRecord } from '../../../../db/support/json.ts'
import { failureTold, INCOMPLETE_OF_END } from '../ends.ts'
import { AnsweredCall } from '../kept-call.ts'
import type { AnswerEnd, AnswerEvent, AnswerPart, AnswerUsage } from '../model/answer.ts'
import { sizeOfLogprobs, type TokenLogprob } from '../model/logprobs.ts'
import type { AnswerWriter } from '../model/reader.ts'
import type { AnswerWriting } from '../model/writing.ts'

/** Characters that are kept of one answer, whose end repeats all of it. */
const MAX_ANSWER = 16 * 1024 * 1024

interface OpenItem {
  readonly index: number
  readonly id: string
  readonly part: AnswerPart
  readonly call: AnsweredCall | null
  text: string
  readonly logprobs: TokenLogprob[]
}

/** Writes the events of a Responses stream (openai, ResponseStreamEvent), and the response that they end with. */
export class ResponsesAnswerWriter implements AnswerWriter {
  readonly ping = ': ping\n\n'
  readonly #writing: AnswerWriting
  readonly #id: string
  readonly #createdAt: number
  readonly #output: UnknownRecord[] = []
  #number = 0
  #items = 0
  #length = 0
  #open: OpenItem | null = null
  /** True: the arguments of the last call are not finished, which only a full answer excuses. */
  #isUnfinished = false
  #usage: AnswerUsage = {}
  #written = ''
  #status: UnknownRecord = { status: 'in_progress' }
  /** True once its last event is written. */
  isOver = false
  /** True once it is written whole. */
  isWhole = false

  constructor(writing: AnswerWriting) {
    this.#writing = writing
    this.#id = `resp_${writing.id}`
    this.#createdAt = Math.floor(writing.now / 1000)
  }

  /** Returns the text of the events that say the same. Throws RangeError for arguments that are too long. */
  add(event: AnswerEvent): string {
    if (event.kind === 'start') this.#start()
    else if (event.kind === 'usage') this.#usage = event.usage
    else if (event.kind === 'broken') this.#fail(event.why)
    else if (event.kind === 'end') this.#end(event.reason)
    else if (this.#isUnfinished) this.#fail()
    else if (event.kind === 'open') this.#openItem(event.part)
    else if (this.#open && event.kind === 'delta') this.#delta(this.#open, event.text, event.logprobs)
    else if (this.#open && event.kind === 'close') this.#close(this.#open, event.sealed)
    const written = this.#written
    this.#written = ''
    return written
  }

  /** Returns the whole answer; null: it is broken. */
  document(): UnknownRecord | null {
    return this.isWhole ? this.#response() : null
  }

  #send(type: string, members: UnknownRecord): void {
    const event = { type, sequence_number: this.#number, ...members }
    this.#number += 1
    this.#written += `event: ${type}\ndata: ${JSON.stringify(event)}\n\n`
  }

  #response(): UnknownRecord {
    return {
      id: this.#id,
      object: 'response',
      created_at: this.#createdAt,
      model: this.#writing.model,
      error: null,
      incomplete_details: null,
      instructions: null,
      metadata: {},
      parallel_tool_calls: true,
      temperature: null,
      top_p: null,
      tool_choice: 'auto',
      tools: [],
      store: false,
      ...this.#status,
      output: this.#output,
      usage: this.#status.status === 'in_progress' ? null : usageOf(this.#usage),
    }
  }

  #start(): void {
    this.#send('response.created', { response: this.#response() })
    this.#send('response.in_progress', { response: this.#response() })
  }

  #openItem(part: AnswerPart): void {
    const index = this.#items
    this.#items += 1
    const id = `${PREFIX[part.kind]}_${this.#writing.id}_${index}`
    const call = part.kind === 'call' ? new AnsweredCall(part.id, part.name, this.#writing.names) : null
    const open: OpenItem = { index, id, part, call, text: '', logprobs: [] }
    this.#open = open
    this.#send('response.output_item.added', { output_index: index, item: itemOf(open, 'in_progress', null) })
    if (part.kind === 'text' || part.kind === 'refusal')
      this.#send('response.content_part.added', { ...placeOf(open), part: contentOf(open) })
  }

  #delta(open: OpenItem, text: string, logprobs: readonly TokenLogprob[] = []): void {
    const { part, call, index: output_index, id: item_id } = open
    if (part.kind === 'reasoning') {
      if (this.#writing.showReasoning) this.#showReasoning(open, text)
      return
    }
    if (!call) open.text += text
    open.logprobs.push(...logprobs)
    this.#length += text.length + sizeOfLogprobs(logprobs)
    if (this.#length > MAX_ANSWER) throw new RangeError('the answer is longer than 16 MiB')
    const delta = call ? call.add(text) : text
    if (delta === '' && logprobs.length === 0) return
    if (part.kind === 'call')
      this.#send('response.function_call_arguments.delta', { item_id, output_index, delta })
    else
      this.#send(`response.${WORD[part.kind]}.delta`, {
        ...{ ...placeOf(open), delta },
        ...(part.kind === 'text' && { logprobs: logprobs.map(withBytes) }),
      })
  }

  #showReasoning(open: OpenItem, text: string): void {
    const place = { item_id: open.id, output_index: open.index, summary_index: 0 }
    if (open.text === '')
      this.#send('response.reasoning_summary_part.added', {
        ...place,
        part: { type: 'summary_text', text: '' },
      })
    open.text += text
    this.#send('response.reasoning_summary_text.delta', { ...place, delta: text })
  }

  #close(open: OpenItem, sealed: string | undefined): void {
    const { part, call, index: output_index, id: item_id } = open
    if (call) {
      const input = call.input()
      if (input === null) {
        this.#isUnfinished = true
        return
      }
      open.text = input
      if (call.tool.isCustom) {
        this.#send('response.custom_tool_call_input.delta', { item_id, output_index, delta: input })
        this.#send('response.custom_tool_call_input.done', { item_id, output_index, input })
      } else
        this.#send('response.function_call_arguments.done', {
          ...{ item_id, output_index, name: call.tool.name, arguments: input },
        })
    } else if (part.kind === 'text' || part.kind === 'refusal') {
      const whole =
        part.kind === 'text'
          ? { text: open.text, logprobs: open.logprobs.map(withBytes) }
          : { refusal: open.text }
      this.#send(`response.${WORD[part.kind]}.done`, { ...placeOf(open), ...whole })
      this.#send('response.content_part.done', { ...placeOf(open), part: contentOf(open) })
    }
    if (part.kind === 'reasoning' && open.text !== '') {
      const place = { item_id, output_index, summary_index: 0 }
      this.#send('response.reasoning_summary_text.done', { ...place, text: open.text })
      this.#send('response.reasoning_summary_part.done', {
        ...place,
        part: { type: 'summary_text', text: open.text },
      })
    }
    const item = itemOf(open, 'completed', sealed ?? null)
    this.#output.push(item)
    this.#send('response.output_item.done', { output_index, item })
    this.#open = null
  }

  #end(reason: AnswerEnd): void {
    const incomplete = INCOMPLETE_OF_END[reason]
    if (this.#isUnfinished && incomplete !== 'max_output_tokens') {
      this.#fail()
      return
    }
    const status = incomplete === null ? 'completed' : 'incomplete'
    this.#status = {
      status,
      ...(incomplete === null ? {} : { incomplete_details: { reason: incomplete } }),
    }
    this.#send(`response.${status}`, { response: this.#response() })
    this.isOver = true
    this.isWhole = true
  }

  /** Codex reads the first of the two alone; loops of the SDK throw at the second. */
  #fail(fault: string | null = null): void {
    const { code, message } = failureTold(fault)
    const error = { code: code ?? 'server_error', message }
    this.#status = { status: 'failed', error }
    this.#send('response.failed', { response: this.#response() })
    this.#send('error', { ...error, param: null })
    this.isOver = true
  }
}

const PREFIX = { text: 'msg', refusal: 'msg', reasoning: 'rs', call: 'fc' } as const
const WORD = { text: 'output_text', refusal: 'refusal' } as const

const placeOf = ({ id, index }: OpenItem) => ({ item_id: id, output_index: index, content_index: 0 })

const contentOf = ({ part, text, logprobs }: OpenItem): UnknownRecord =>
  part.kind === 'refusal'
    ? { type: 'refusal', refusal: text }
    : { type: 'output_text', text, annotations: [], logprobs: logprobs.map(withBytes) }

/** This wire always has a list of bytes. */
const withBytes = ({ bytes, ...rest }: TokenLogprob): UnknownRecord => ({ ...rest, bytes: bytes ?? [] })

function itemOf(open: OpenItem, status: 'in_progress' | 'completed', sealed: string | null): UnknownRecord {
  const { id, part, call, text } = open
  if (part.kind === 'reasoning') {
    const summary = text === '' || status === 'in_progress' ? [] : [{ type: 'summary_text', text }]
    return { id, type: 'reasoning', summary, encrypted_content: sealed }
  }
  if (!call)
    return {
      ...{ id, type: 'message', status, role: 'assistant' },
      content: status === 'completed' ? [contentOf(open)] : [],
    }
  const { name, namespace, isCustom } = call.tool
  return {
    ...{ id, type: isCustom ? 'custom_tool_call' : 'function_call', status, call_id: call.id, name },
    ...(namespace !== null && { namespace }),
    ...(isCustom ? { input: text } : { arguments: text }),
  }
}

function usageOf({ prompt, cached, written, output, reasoning }: AnswerUsage): UnknownRecord | null {
  if (prompt === undefined || output === undefined) return null
  return {
    input_tokens: prompt,
    input_tokens_details: {
      cached_tokens: cached ?? 0,
      ...(written !== undefined && { cache_write_tokens: written }),
    },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: reasoning ?? 0 },
    total_tokens: prompt + output,
  }
}
