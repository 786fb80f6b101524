import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { END_OF_STOP_REASON, faultOfError } from '../ends.ts'
import type { ServerEvent } from '../events.ts'
import type { AnswerEvent, AnswerUsage } from '../model/answer.ts'
import type { AnswerMeans, AnswerReader } from '../model/reader.ts'
import { countOf } from '../model/usage.ts'
import { ExactJson } from '../request/exact-json.ts'

/** Blocks of one answer. One with more is broken. */
const MAX_BLOCKS = 10_000
const MAX_CALLS = 128
/** Characters. */
const MAX_NAME = 256

interface OpenBlock {
  readonly index: number
  readonly kind: 'text' | 'call' | 'thinking'
  /** The part of thinking that has come; null of another block. */
  readonly exact: Record<string, unknown> | null
}

/**
 * Reads the events of a Messages stream (@anthropic-ai/sdk, RawMessageStreamEvent) as they come. An answer of a
 * kind that was not asked for is broken, as is one whose events cannot stand where they do.
 */
export class MessagesAnswerReader implements AnswerReader {
  readonly canEnd = false
  readonly #seal: AnswerMeans['seal']
  readonly #exact = new ExactJson()
  readonly #out: AnswerEvent[] = []
  #open: OpenBlock | null = null
  /** The thinking that stands together. */
  #reasoning: Record<string, unknown>[] | null = null
  /** Characters of it, and of all that came before. */
  #thought = 0
  #blocks = 0
  #calls = 0
  #stop: string | null = null
  #stopWord: string | null = null
  /** The usage as it was stated so far. */
  readonly #parts: Record<string, unknown> = {}
  #isOver = false

  constructor({ seal }: AnswerMeans) {
    this.#seal = seal
  }

  get kept(): number {
    return this.#thought
  }

  document(text: string): AnswerEvent[] {
    const message = this.#exact.parse(text)
    if (!isObject(message) || message.type !== 'message' || !Array.isArray(message.content))
      return this.#broken('the answer is no message')
    const events: AnswerEvent[] = this.#add({ type: 'message_start', message: { ...message, content: [] } })
    for (const [index, block] of message.content.entries()) {
      events.push(...this.#add({ type: 'content_block_start', index, content_block: block }))
      events.push(...this.#add({ type: 'content_block_stop', index }))
    }
    const { stop_reason, stop_sequence, usage } = message
    events.push(...this.#add({ type: 'message_delta', delta: { stop_reason, stop_sequence }, usage }))
    return [...events, ...this.#add({ type: 'message_stop' })]
  }

  add({ name, data }: ServerEvent): AnswerEvent[] {
    if (this.#isOver) return []
    try {
      const event: unknown = JSON.parse(data)
      if (isObject(event)) return this.#add({ type: name, ...event })
    } catch {
      // As is said of one that is no object.
    }
    return this.#broken('an event is no JSON object')
  }

  /** The stream has ended. */
  end(): AnswerEvent[] {
    return this.#isOver ? [] : this.#broken('the stream ended before its message did')
  }

  #add(event: UnknownRecord): AnswerEvent[] {
    if (this.#isOver) return []
    const fault = this.#read(event)
    if (fault !== null) return this.#broken(fault)
    return this.#out.splice(0)
  }

  #broken(why: string): AnswerEvent[] {
    this.#isOver = true
    return [...this.#out.splice(0), { kind: 'broken', why }]
  }

  /** Returns the fault of the event, or null. */
  #read(event: UnknownRecord): string | null {
    const { type } = event
    if (type === 'message_start') return this.#start(event.message)
    if (type === 'content_block_start') return this.#startBlock(event.index, event.content_block)
    if (type === 'content_block_delta') return this.#delta(event.index, event.delta)
    if (type === 'content_block_stop') return this.#stopBlock(event.index)
    if (type === 'message_delta') return this.#messageDelta(event)
    if (type === 'message_stop') return this.#stopMessage()
    // Others, such as pings, may come at any time.
    return type === 'error' ? faultOfError(event.error) : null
  }

  #start(message: unknown): string | null {
    if (!isObject(message) || typeof message.id !== 'string') return 'the message has no id'
    this.#out.push({ kind: 'start', id: message.id.slice(0, MAX_NAME) })
    this.#count(message.usage)
    return null
  }

  #startBlock(index: unknown, block: unknown): string | null {
    this.#blocks += 1
    if (this.#blocks > MAX_BLOCKS) return 'the answer has too many blocks'
    if (!isObject(block) || !Number.isInteger(index)) return 'a block is none'
    if (this.#open) return 'a block began before another one ended'
    const at = Number(index)
    if (block.type === 'thinking' || block.type === 'redacted_thinking') return this.#startThinking(at, block)
    this.#endReasoning()
    if (block.type === 'text') {
      this.#open = { index: at, kind: 'text', exact: null }
      this.#out.push({ kind: 'open', part: { kind: 'text' } })
      this.#text(block.text)
      return null
    }
    if (block.type !== 'tool_use') return 'the answer has a block that nobody asked for'
    return this.#startCall(at, block)
  }

  #startCall(index: number, { id, name, input }: UnknownRecord): string | null {
    this.#calls += 1
    if (this.#calls > MAX_CALLS) return 'the answer has too many calls'
    if (typeof id !== 'string' || typeof name !== 'string' || id.length > MAX_NAME || name.length > MAX_NAME)
      return 'a call has no name or id'
    this.#open = { index, kind: 'call', exact: null }
    this.#out.push({ kind: 'open', part: { kind: 'call', id, name } })
    if (isObject(input) && Object.keys(input).length > 0) this.#text(this.#exact.write(input))
    return null
  }

  #startThinking(index: number, block: UnknownRecord): null {
    if (!this.#reasoning) {
      this.#reasoning = []
      this.#out.push({ kind: 'open', part: { kind: 'reasoning' } })
    }
    const exact = { ...block }
    this.#thought += JSON.stringify(block).length
    if (this.#thought <= MAX_THOUGHT) this.#reasoning.push(exact)
    this.#open = { index, kind: 'thinking', exact }
    this.#text(block.thinking)
    return null
  }

  #text(text: unknown): void {
    if (typeof text === 'string' && text !== '') this.#out.push({ kind: 'delta', text })
  }

  #delta(index: unknown, delta: unknown): string | null {
    const open = this.#open
    if (open === null || index !== open.index || !isObject(delta)) return 'a piece came for no open block'
    const { kind, exact } = open
    if (delta.type === 'text_delta' && kind === 'text') this.#text(delta.text)
    else if (delta.type === 'input_json_delta' && kind === 'call') this.#text(delta.partial_json)
    else if (delta.type === 'thinking_delta' && exact) {
      this.#append(exact, 'thinking', delta.thinking)
      this.#text(delta.thinking)
    } else if (delta.type === 'signature_delta' && exact) this.#append(exact, 'signature', delta.signature)
    // Citations are of documents that the caller has sent: the text is whole without them.
    else if (delta.type !== 'citations_delta') return 'a piece is of another kind than its block'
    return null
  }

  #append(block: Record<string, unknown>, name: string, piece: unknown): void {
    if (typeof piece !== 'string') return
    this.#thought += piece.length
    const before = block[name]
    if (this.#thought <= MAX_THOUGHT) block[name] = typeof before === 'string' ? before + piece : piece
  }

  #stopBlock(index: unknown): string | null {
    if (this.#open === null || index !== this.#open.index) return 'a block ended that was not open'
    const { kind } = this.#open
    this.#open = null
    if (kind !== 'thinking') this.#out.push({ kind: 'close' })
    return null
  }

  /** Thinking that stands together comes back together. */
  #endReasoning(): void {
    if (!this.#reasoning) return
    const sealed = this.#thought <= MAX_THOUGHT ? this.#seal(this.#reasoning) : null
    this.#reasoning = null
    this.#out.push({ kind: 'close', ...(sealed !== null && { sealed }) })
  }

  #messageDelta({ delta, usage }: UnknownRecord): null {
    if (isObject(delta) && typeof delta.stop_reason === 'string') this.#stop = delta.stop_reason
    if (isObject(delta) && typeof delta.stop_sequence === 'string') this.#stopWord = delta.stop_sequence
    this.#count(usage)
    return null
  }

  #stopMessage(): string | null {
    if (this.#open) return 'the message ended before its block did'
    this.#endReasoning()
    const reason = Object.hasOwn(END_OF_STOP_REASON, this.#stop ?? '')
      ? END_OF_STOP_REASON[this.#stop ?? '']
      : undefined
    if (reason === undefined) return 'the message ended for a reason that cannot be told'
    this.#isOver = true
    const stopWord = this.#stopWord
    this.#out.push({ kind: 'usage', usage: this.#usage() })
    this.#out.push({ kind: 'end', reason, ...(stopWord !== null && { stopWord }) })
    return null
  }

  /** A later count is of all so far. The parts of the prompt are counted apart in this wire. */
  #count(usage: unknown): void {
    if (!isObject(usage)) return
    for (const name of COUNTS) {
      const value = Object.hasOwn(usage, name) ? (usage[name] ?? null) : null
      if (value !== null) this.#parts[name] = value
    }
  }

  #usage(): AnswerUsage {
    const { output_tokens_details: details } = this.#parts
    const cached = countOf('cached', this.#parts.cache_read_input_tokens)
    const written = countOf('written', this.#parts.cache_creation_input_tokens)
    const { prompt } = countOf('prompt', this.#parts.input_tokens)
    return {
      ...(prompt !== undefined && { prompt: prompt + (cached.cached ?? 0) + (written.written ?? 0) }),
      ...cached,
      ...written,
      ...countOf('output', this.#parts.output_tokens),
      ...(isObject(details) && countOf('reasoning', details.thinking_tokens)),
    }
  }
}

/** Characters of an answer's thinking that are kept. With more, none of it is sealed, and so it does not come back. */
const MAX_THOUGHT = 1024 * 1024

/** The counts of a message that are told. */
const COUNTS = [
  'input_tokens',
  'cache_read_input_tokens',
  'cache_creation_input_tokens',
  'output_tokens',
  'output_tokens_details',
] as const
