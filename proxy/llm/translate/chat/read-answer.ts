import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { faultOfError } from '../ends.ts'
import type { ServerEvent } from '../events.ts'
import type { AnswerEnd, AnswerEvent, AnswerUsage } from '../model/answer.ts'
import { readLogprobs, type TokenLogprob } from '../model/logprobs.ts'
import type { AnswerMeans, AnswerReader } from '../model/reader.ts'
import { countOf } from '../model/usage.ts'
import { PartSequencer } from '../sequencer.ts'

const MAX_NAME = 256
/** Characters of reasoning that are kept. More of it is not sealed, and so does not come back. */
const MAX_REASONING = 1024 * 1024

const ENDS: Readonly<Record<string, AnswerEnd>> = {
  stop: 'done',
  eos: 'done',
  tool_calls: 'calls',
  function_call: 'calls',
  length: 'max_tokens',
  content_filter: 'refusal',
}

interface ChatCall {
  readonly key: string
  readonly id: string
  /** The id as the server stated it, maybe empty. */
  readonly stated: string
  text: string
  extra: unknown
}

/**
 * Reads the chunks of a Chat Completions stream (openai, ChatCompletionChunk) as servers really send them: several
 * calls in one chunk, all with index 0, with empty, missing or doubled ids; usage before, at or after the end; no
 * `[DONE]` behind a `finish_reason`.
 */
export class ChatAnswerReader implements AnswerReader {
  readonly #reading: AnswerMeans
  readonly #out: AnswerEvent[] = []
  readonly #parts = new PartSequencer(this.#out)
  readonly #calls: ChatCall[] = []
  readonly #byIndex = new Map<number, ChatCall>()
  #reasoning = ''
  /** Characters of the arguments of all calls. */
  #arguments = 0
  #texts = 0
  #usage: AnswerUsage | null = null
  #finish: AnswerEnd | null = null
  #stopWord: string | null = null
  #refused = false
  #hasBegun = false
  #isOver = false

  constructor(reading: AnswerMeans) {
    this.#reading = reading
  }

  get kept(): number {
    return this.#parts.kept + this.#reasoning.length + this.#arguments
  }

  get canEnd(): boolean {
    return this.#finish !== null
  }

  add({ data }: ServerEvent): readonly AnswerEvent[] {
    if (this.#isOver) return []
    if (data.trim() === '[DONE]') return this.#end('the stream ended without a reason')
    let chunk: unknown
    try {
      chunk = JSON.parse(data)
    } catch {
      return this.#broken('an event is no JSON')
    }
    return isObject(chunk) ? this.#chunk(chunk) : this.#broken('an event is no JSON object')
  }

  end(): readonly AnswerEvent[] {
    return this.#isOver ? [] : this.#end('the stream ended before its answer did')
  }

  document(text: string): readonly AnswerEvent[] {
    const whole: unknown = JSON.parse(text)
    const choices = isObject(whole) && Array.isArray(whole.choices) ? whole.choices : []
    if (!isObject(whole) || choices.length === 0) return this.#broken('the answer has no choice')
    const first: unknown = choices[0]
    const choice = isObject(first) ? { ...first, delta: first.message } : {}
    const events = this.#chunk({ ...whole, choices: [choice] })
    return [...events, ...this.end()]
  }

  #chunk(chunk: UnknownRecord): readonly AnswerEvent[] {
    if ((chunk.error ?? null) !== null) return this.#broken(faultOfError(chunk.error))
    if (!this.#hasBegun) {
      this.#hasBegun = true
      this.#out.push({ kind: 'start', id: typeof chunk.id === 'string' ? chunk.id.slice(0, MAX_NAME) : '' })
    }
    this.#count(chunk.usage)
    const choices = Array.isArray(chunk.choices) ? (chunk.choices as readonly unknown[]) : []
    for (const choice of choices) {
      const fault = isObject(choice) ? this.#choice(choice) : null
      if (fault !== null) return this.#broken(fault)
    }
    return this.#out.splice(0)
  }

  /** Returns the fault of the choice, or null. */
  #choice(choice: UnknownRecord): string | null {
    const { delta, finish_reason: finish, index, logprobs } = choice
    if ((index ?? 0) !== 0) return null
    if (isObject(delta)) {
      const fault = this.#delta(delta, isObject(logprobs) ? readLogprobs(logprobs.content) : [])
      if (fault !== null) return fault
    }
    // Some servers say an empty reason in each chunk before the last.
    if (finish === '' || (finish ?? null) === null || this.#finish !== null) return null
    const reason = typeof finish === 'string' && Object.hasOwn(ENDS, finish) ? ENDS[finish] : undefined
    if (reason === undefined) return 'the answer ended for a reason that cannot be told'
    this.#finish = reason
    if (reason === 'done') this.#stopWord = this.#stopWordOf(choice)
    return null
  }

  /** Finds the stop word that ended the answer, which vLLM and SGLang state; null: none, or it is not stated. */
  #stopWordOf({ stop_reason: stopReason, matched_stop: matched }: UnknownRecord): string | null {
    return this.#reading.stopWords.find((word) => word === stopReason || word === matched) ?? null
  }

  #delta(delta: UnknownRecord, logprobs: readonly TokenLogprob[]): string | null {
    const { content, refusal, tool_calls: calls, reasoning_content: thought, reasoning } = delta
    for (const text of [thought, reasoning]) if (typeof text === 'string' && text !== '') this.#think(text)
    const texts: readonly unknown[] = Array.isArray(content)
      ? content.map((part: unknown) => (isObject(part) ? part.text : part))
      : [content]
    const said = texts.filter((text): text is string => typeof text === 'string' && text !== '')
    for (const [index, text] of said.entries()) this.#say('text', text, index === 0 ? logprobs : [])
    // Half of a character has a token, and no text. Tokens of reasoning and of calls have no place.
    if (content === '' && logprobs.length > 0 && !thought && !reasoning && !calls)
      this.#say('text', '', logprobs)
    if (typeof refusal === 'string' && refusal !== '') {
      this.#refused = true
      this.#say('refusal', refusal)
    }
    const seen = new Set<ChatCall>()
    for (const call of Array.isArray(calls) ? (calls as readonly unknown[]) : []) {
      const fault = isObject(call) ? this.#call(call, seen) : 'a call is none'
      if (fault !== null) return fault
    }
    return null
  }

  /** Reasoning that comes late follows what it would split. */
  #think(text: string): void {
    if (this.#reasoning.length <= MAX_REASONING) this.#reasoning += text
    if (!this.#parts.has('reasoning')) this.#parts.open('reasoning', { kind: 'reasoning' })
    this.#parts.add('reasoning', text)
  }

  #say(kind: 'text' | 'refusal', text: string, logprobs: readonly TokenLogprob[] = []): void {
    this.#endReasoning()
    const { current } = this.#parts
    let key = `${kind} ${this.#texts}`
    if (!this.#parts.has(key)) {
      if (current?.kind === 'text' || current?.kind === 'refusal') this.#parts.close(current.key)
      this.#texts += 1
      key = `${kind} ${this.#texts}`
      this.#parts.open(key, { kind })
    }
    this.#parts.add(key, text, logprobs)
  }

  /** Ends the reasoning that leads to what comes now. */
  #endReasoning(): void {
    if (this.#parts.current?.key === 'reasoning') this.#parts.close('reasoning', this.#sealed())
  }

  #sealed(): string | null {
    return this.#reading.seal([{ text: this.#reasoning }])
  }

  /** Keeps what a server has put on its calls, and wants back with them. */
  #keepExtras(): void {
    const calls = this.#calls.flatMap(({ id, extra }) => (extra === undefined ? [] : [[id, extra]]))
    if (calls.length === 0) return
    this.#parts.open('extras', { kind: 'reasoning' })
    this.#parts.close('extras', this.#reading.seal([{ text: '', calls }]))
  }

  #call(given: UnknownRecord, seen: Set<ChatCall>): string | null {
    const { id, index, function: stated, extra_content: extra } = given
    const of = isObject(stated) ? stated : {}
    const call = this.#callOf({ id, index, name: of.name }, seen)
    if (call === null) return 'a call has no name'
    seen.add(call)
    call.extra ??= extra
    const { arguments: args } = of
    const text = typeof args === 'string' ? args : isObject(args) ? JSON.stringify(args) : ''
    call.text += text
    this.#arguments += text.length
    this.#parts.add(call.key, text)
    return null
  }

  /** Finds the call that a piece is of, or begins one; null: nothing says which. */
  #callOf(
    { id, index, name }: { readonly id: unknown; readonly index: unknown; readonly name: unknown },
    seen: ReadonlySet<ChatCall>,
  ): ChatCall | null {
    const at = Number.isInteger(index) ? Number(index) : 0
    const known = this.#byIndex.get(at)
    const hasName = typeof name === 'string' && name !== ''
    const isOther = typeof id === 'string' && id !== '' && id !== known?.stated
    const isAnew = hasName && known && (seen.has(known) || isWholeObject(known.text))
    if (known && !isAnew && !(isOther && hasName)) return known
    if (!hasName || name.length > MAX_NAME) return null
    const stated = typeof id === 'string' && id.length <= MAX_NAME ? id : ''
    const isTaken = stated === '' || this.#calls.some((call) => call.id === stated)
    const own = isTaken ? `${stated || 'call'}_${this.#calls.length}` : stated
    const call: ChatCall = { key: `call ${this.#calls.length}`, id: own, stated, text: '', extra: undefined }
    this.#calls.push(call)
    this.#byIndex.set(at, call)
    this.#endReasoning()
    const { current } = this.#parts
    if (current?.kind === 'text') this.#parts.close(current.key)
    this.#parts.open(call.key, { kind: 'call', id: own, name })
    return call
  }

  #end(why: string): readonly AnswerEvent[] {
    const finish = this.#finish
    if (finish === null) return this.#broken(why)
    if (this.#parts.has('reasoning')) this.#parts.close('reasoning', this.#sealed())
    this.#parts.finish()
    this.#keepExtras()
    this.#isOver = true
    this.#out.push({ kind: 'usage', usage: this.#usage ?? {} }, this.#endFor(finish))
    return this.#out.splice(0)
  }

  #endFor(finish: AnswerEnd): AnswerEvent {
    if (finish !== 'done') return { kind: 'end', reason: finish }
    if (this.#calls.length > 0) return { kind: 'end', reason: 'calls' }
    if (this.#refused) return { kind: 'end', reason: 'refusal' }
    const stopWord = this.#stopWord
    return stopWord === null
      ? { kind: 'end', reason: 'done' }
      : { kind: 'end', reason: 'stop_word', stopWord }
  }

  #broken(why: string): readonly AnswerEvent[] {
    this.#isOver = true
    return [...this.#out.splice(0), { kind: 'broken', why }]
  }

  #count(usage: unknown): void {
    if (!isObject(usage)) return
    const { prompt_tokens_details: read, completion_tokens_details: written } = usage
    const [reading, writing] = [isObject(read) ? read : {}, isObject(written) ? written : {}]
    this.#usage = {
      ...countOf('prompt', usage.prompt_tokens),
      ...countOf('output', usage.completion_tokens),
      ...countOf('cached', reading.cached_tokens),
      ...countOf('written', reading.cache_write_tokens),
      ...countOf('reasoning', writing.reasoning_tokens),
    }
  }
}

function isWholeObject(text: string): boolean {
  if (!text.endsWith('}')) return false
  try {
    return isObject(JSON.parse(text))
  } catch {
    return false
  }
}
