import type { UnknownRecord } from '../../../../db/support/json.ts'
import { failureTold, STOP_REASON_OF_END } from '../ends.ts'
import { AnsweredCall } from '../kept-call.ts'
import type { AnswerEnd, AnswerEvent, AnswerPart, AnswerUsage } from '../model/answer.ts'
import type { AnswerWriter } from '../model/reader.ts'
import { freshTokens } from '../model/usage.ts'
import type { AnswerWriting } from '../model/writing.ts'

interface OpenBlock {
  readonly part: AnswerPart
  readonly call: AnsweredCall | null
  text: string
}

/** Writes the events of a Messages stream (@anthropic-ai/sdk, RawMessageStreamEvent), and the message that they make. */
export class MessagesAnswerWriter implements AnswerWriter {
  readonly ping = 'event: ping\ndata: {"type":"ping"}\n\n'
  readonly #writing: AnswerWriting
  readonly #content: UnknownRecord[] = []
  #index = 0
  #open: OpenBlock | null = null
  #isUnfinished = false
  #usage: AnswerUsage = {}
  #stop: UnknownRecord = { stop_reason: null, stop_sequence: null }
  #written = ''
  isOver = false
  isWhole = false

  constructor(writing: AnswerWriting) {
    this.#writing = writing
  }

  add(event: AnswerEvent): string {
    if (event.kind === 'start') this.#send('message_start', { message: this.#message() })
    else if (event.kind === 'usage') this.#usage = event.usage
    else if (event.kind === 'broken') this.#fail(event.why)
    else if (event.kind === 'end') this.#end(event.reason, event.stopWord)
    else if (this.#isUnfinished) this.#fail()
    else if (event.kind === 'open') this.#openBlock(event.part)
    else if (this.#open && event.kind === 'delta') this.#delta(this.#open, event.text)
    else if (this.#open && event.kind === 'close') this.#close(this.#open, event.sealed)
    const written = this.#written
    this.#written = ''
    return written
  }

  document(): UnknownRecord | null {
    return this.isWhole
      ? { ...this.#message(), content: this.#content, ...this.#stop, usage: usageOf(this.#usage) }
      : null
  }

  #send(type: string, members: UnknownRecord): void {
    this.#written += `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`
  }

  #message(): UnknownRecord {
    return {
      ...{ id: `msg_${this.#writing.id}`, type: 'message', role: 'assistant', model: this.#writing.model },
      ...{ content: [], stop_reason: null, stop_sequence: null },
      usage: { input_tokens: 0, output_tokens: 0 },
    }
  }

  #openBlock(part: AnswerPart): void {
    const call = part.kind === 'call' ? new AnsweredCall(part.id, part.name, this.#writing.names) : null
    this.#open = { part, call, text: '' }
    this.#send('content_block_start', { index: this.#index, content_block: emptyBlock(this.#open) })
  }

  #delta(open: OpenBlock, text: string): void {
    const { part, call } = open
    if (part.kind === 'reasoning' && !this.#writing.showReasoning) return
    if (call) call.add(text)
    else if (!this.#writing.isStream) open.text += text
    this.#piece(
      call
        ? { type: 'input_json_delta', partial_json: text }
        : part.kind === 'reasoning'
          ? { type: 'thinking_delta', thinking: text }
          : { type: 'text_delta', text },
    )
  }

  #piece(delta: UnknownRecord): void {
    this.#send('content_block_delta', { index: this.#index, delta })
  }

  #close(open: OpenBlock, sealed = ''): void {
    const { part, call, text } = open
    const input = call?.input() ?? null
    if (call && input === null) {
      this.#isUnfinished = true
      return
    }
    if (part.kind === 'reasoning') this.#piece({ type: 'signature_delta', signature: sealed })
    this.#send('content_block_stop', { index: this.#index })
    this.#index += 1
    this.#open = null
    if (this.#writing.isStream) return
    const empty = emptyBlock(open)
    if (input !== null) this.#content.push({ ...empty, input: JSON.parse(input) })
    else if (part.kind === 'reasoning') this.#content.push({ ...empty, thinking: text, signature: sealed })
    else this.#content.push({ ...empty, text })
  }

  #end(reason: AnswerEnd, stopWord: string | undefined): void {
    if (this.#isUnfinished && reason !== 'max_tokens' && reason !== 'window') {
      this.#fail()
      return
    }
    this.#stop = { stop_reason: STOP_REASON_OF_END[reason], stop_sequence: stopWord ?? null }
    this.#send('message_delta', { delta: this.#stop, usage: usageOf(this.#usage) })
    this.#send('message_stop', {})
    this.isOver = true
    this.isWhole = true
  }

  #fail(fault: string | null = null): void {
    const { type, message } = failureTold(fault)
    this.#send('error', { error: { type, message } })
    this.isOver = true
  }
}

function emptyBlock({ part, call }: OpenBlock): UnknownRecord {
  if (call) return { type: 'tool_use', id: call.id, name: call.tool.name, input: {} }
  return part.kind === 'reasoning'
    ? { type: 'thinking', thinking: '', signature: '' }
    : { type: 'text', text: '' }
}

const usageOf = (usage: AnswerUsage): UnknownRecord => ({
  input_tokens: freshTokens(usage),
  ...(usage.cached !== undefined && { cache_read_input_tokens: usage.cached }),
  ...(usage.written !== undefined && { cache_creation_input_tokens: usage.written }),
  output_tokens: usage.output ?? 0,
  ...(usage.reasoning !== undefined && { output_tokens_details: { thinking_tokens: usage.reasoning } }),
})
