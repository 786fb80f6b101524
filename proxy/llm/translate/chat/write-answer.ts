import type { UnknownRecord } from '../../../../db/support/json.ts'
import { FINISH_OF_END, failureTold } from '../ends.ts'
import { AnsweredCall } from '../kept-call.ts'
import type { AnswerEnd, AnswerEvent, AnswerPart, AnswerUsage } from '../model/answer.ts'
import type { TokenLogprob } from '../model/logprobs.ts'
import type { AnswerWriter } from '../model/reader.ts'
import type { AnswerWriting } from '../model/writing.ts'

/** Writes the chunks of a Chat Completions stream (openai, ChatCompletionChunk), and the completion that they make. */
export class ChatAnswerWriter implements AnswerWriter {
  readonly ping = ': ping\n\n'
  readonly #writing: AnswerWriting
  readonly #head: UnknownRecord
  readonly #calls: AnsweredCall[] = []
  #part: AnswerPart | null = null
  #isUnfinished = false
  #content: string | null = null
  #refusal: string | null = null
  #reasoning = ''
  readonly #logprobs: TokenLogprob[] = []
  #usage: AnswerUsage = {}
  #finish: string | null = null
  #written = ''
  /** True once its last chunk is written. */
  isOver = false
  /** True once it is written whole. */
  isWhole = false

  constructor(writing: AnswerWriting) {
    this.#writing = writing
    this.#head = {
      id: `chatcmpl-${writing.id}`,
      created: Math.floor(writing.now / 1000),
      model: writing.model,
    }
  }

  /** Returns the text of the chunks that say the same. Throws RangeError for arguments that are too long. */
  add(event: AnswerEvent): string {
    if (event.kind === 'start') this.#send({ role: 'assistant', content: '', refusal: null })
    else if (event.kind === 'usage') this.#usage = event.usage
    else if (event.kind === 'broken') this.#fail(event.why)
    else if (event.kind === 'end') this.#end(event.reason)
    else if (this.#isUnfinished) this.#fail()
    else if (event.kind === 'open') this.#openPart(event.part)
    else if (event.kind === 'delta') this.#delta(event.text, event.logprobs)
    else this.#close()
    const written = this.#written
    this.#written = ''
    return written
  }

  /** Returns the whole answer; null: it is broken. */
  document(): UnknownRecord | null {
    if (this.#finish === null) return null
    const calls = this.#calls.flatMap((call, index) => {
      const input = call.input()
      return input === null ? [] : [callOf(call, index, input)]
    })
    const message = {
      role: 'assistant',
      content: this.#content,
      refusal: this.#refusal,
      ...(this.#reasoning !== '' && { reasoning_content: this.#reasoning }),
      ...(calls.length > 0 && { tool_calls: calls.map(({ index, ...call }) => call) }),
    }
    const logprobs = this.#logprobs.length > 0 ? { content: this.#logprobs, refusal: null } : null
    const choice = { index: 0, message, logprobs, finish_reason: this.#finish }
    const usage = usageOf(this.#usage)
    return { ...this.#head, object: 'chat.completion', choices: [choice], ...(usage && { usage }) }
  }

  #chunk(choices: readonly unknown[], usage?: UnknownRecord | null): void {
    const chunk = {
      ...this.#head,
      object: 'chat.completion.chunk',
      choices,
      ...(this.#writing.includeUsage && { usage: usage ?? null }),
    }
    this.#written += `data: ${JSON.stringify(chunk)}\n\n`
  }

  #send(delta: UnknownRecord, finish: string | null = null, content?: readonly TokenLogprob[]): void {
    const logprobs = content ? { content, refusal: null } : null
    this.#chunk([{ index: 0, delta, logprobs, finish_reason: finish }])
  }

  #openPart(part: AnswerPart): void {
    this.#part = part
    if (part.kind === 'text') this.#content ??= ''
    if (part.kind !== 'call') return
    const call = new AnsweredCall(part.id, part.name, this.#writing.names)
    this.#calls.push(call)
    if (!call.tool.isCustom) this.#send({ tool_calls: [callOf(call, this.#calls.length - 1, '')] })
  }

  #delta(text: string, logprobs?: readonly TokenLogprob[]): void {
    const kind = this.#part?.kind
    if (kind === 'text') {
      if (!this.#writing.isStream) {
        this.#content = `${this.#content ?? ''}${text}`
        this.#logprobs.push(...(logprobs ?? []))
      }
      this.#send({ content: text }, null, logprobs)
    } else if (kind === 'refusal') {
      this.#refusal = `${this.#refusal ?? ''}${text}`
      this.#send({ refusal: text })
    } else if (kind === 'reasoning' && this.#writing.showReasoning) {
      // The name that servers of this wire have in common.
      if (!this.#writing.isStream) this.#reasoning += text
      this.#send({ reasoning_content: text })
    } else if (kind === 'call') {
      const delta = this.#calls.at(-1)?.add(text) ?? ''
      const index = this.#calls.length - 1
      if (delta !== '') this.#send({ tool_calls: [{ index, function: { arguments: delta } }] })
    }
  }

  #close(): void {
    const call = this.#part?.kind === 'call' ? this.#calls.at(-1) : undefined
    this.#part = null
    if (!call) return
    const input = call.input()
    if (input === null) this.#isUnfinished = true
    else if (call.tool.isCustom) this.#send({ tool_calls: [callOf(call, this.#calls.length - 1, input)] })
  }

  #end(reason: AnswerEnd): void {
    const finish = FINISH_OF_END[reason]
    if (this.#isUnfinished && finish !== 'length') {
      this.#fail()
      return
    }
    this.#finish = finish === 'stop' && this.#calls.length > 0 ? 'tool_calls' : finish
    this.#send({}, this.#finish)
    if (this.#writing.includeUsage) this.#chunk([], usageOf(this.#usage))
    this.#written += 'data: [DONE]\n\n'
    this.isOver = true
    this.isWhole = true
  }

  #fail(fault: string | null = null): void {
    this.#finish = null
    const { type, code, message } = failureTold(fault)
    const error = { type, code: code ?? 'provider_failed', message, param: null }
    this.#written += `data: ${JSON.stringify({ error })}\n\n`
    this.isOver = true
  }
}

const callOf = ({ id, tool: { name, isCustom } }: AnsweredCall, index: number, input: string) =>
  isCustom
    ? { index, id, type: 'custom', custom: { name, input } }
    : { index, id, type: 'function', function: { name, arguments: input } }

function usageOf({ prompt, cached, written, output, reasoning }: AnswerUsage): UnknownRecord | null {
  if (prompt === undefined || output === undefined) return null
  return {
    prompt_tokens: prompt,
    completion_tokens: output,
    total_tokens: prompt + output,
    prompt_tokens_details: {
      cached_tokens: cached ?? 0,
      ...(written !== undefined && { cache_write_tokens: written }),
    },
    completion_tokens_details: { reasoning_tokens: reasoning ?? 0 },
  }
}
