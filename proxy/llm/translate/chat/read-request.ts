import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { effortOf } from '../effort.ts'
import type { TranslationNotes } from '../losses.ts'
import type { RequestReading } from '../model/reading.ts'
import type { ContentPart, ExtraParameter, ModelRequest, TextPart, ToolDefinition } from '../model/request.ts'
import type { ToolNames } from '../names.ts'
import { readChoice } from '../request/choice.ts'
import { documentOf, imageOf } from '../request/media.ts'
import { type MemberClasses, MemberReader } from '../request/members.ts'
import { defineTool, readCall, readId } from '../request/tools.ts'
import { TurnBuilder } from '../request/turns.ts'
import { CHAT } from './fields.ts'

/** Reads a Chat Completions request (openai, ChatCompletionCreateParams). Notes whatever it does not read. */
export function readChatRequest(body: unknown, reading: RequestReading): ModelRequest {
  return new ChatRequestReader(body, reading).read()
}

class ChatRequestReader {
  readonly #request: MemberReader
  readonly #reading: RequestReading
  readonly #notes: TranslationNotes
  readonly #names: ToolNames
  readonly #turns = new TurnBuilder()
  readonly #tools: ToolDefinition[] = []

  constructor(body: unknown, reading: RequestReading) {
    this.#reading = reading
    this.#notes = reading.notes
    this.#names = reading.names
    this.#request = this.#of(body, CHAT.request, '')
  }

  read(): ModelRequest {
    const request = this.#request
    for (const [index, one] of (request.list('tools') ?? []).entries()) this.#readTool(one, `tools[${index}]`)
    for (const [index, one] of (request.list('messages') ?? []).entries())
      this.#readMessage(this.#of(one, CHAT.message, `messages[${index}]`))
    this.#readAsides()
    return {
      ...{ system: this.#turns.system, turns: this.#turns.turns },
      ...this.#choice(),
      parallelCalls: request.flag('parallel_tool_calls'),
      maxTokens: request.number('max_completion_tokens') ?? request.number('max_tokens'),
      stopWords: this.#stopWords(),
      temperature: request.number('temperature'),
      topP: request.number('top_p'),
      effort: this.#effort(),
      form: this.#form(),
      stream: request.flag('stream') ?? false,
      wantsUsage: this.#wantsUsage(),
      extras: this.#extras(),
      isPrefilled: false,
    }
  }

  #of(object: unknown, classes: MemberClasses, at: string): MemberReader {
    return new MemberReader(object, classes, at, this.#notes)
  }

  /** Reads the members that choose nothing that is told. */
  #readAsides(): void {
    const request = this.#request
    if ((request.number('n') ?? 1) !== 1) this.#notes.never('choices', 'n')
    if (request.flag('store') === true) this.#notes.lose('store', 'store')
    const modes = request.list('modalities') ?? []
    if (modes.some((mode) => mode !== 'text')) this.#notes.never('audio', 'modalities')
  }

  #extras(): readonly ExtraParameter[] {
    const request = this.#request
    const penalty = (name: string) => request.number(name) || null
    const verbosity = request.text('verbosity') ?? 'medium'
    const likely = request.number('top_logprobs')
    const isTold = request.flag('logprobs') === true || (likely ?? 0) > 0
    const extras: readonly (readonly [name: ExtraParameter['name'], value: unknown, field?: string])[] = [
      ['seed', request.number('seed')],
      ['frequency_penalty', penalty('frequency_penalty')],
      ['presence_penalty', penalty('presence_penalty')],
      ['logit_bias', request.object('logit_bias')],
      ['verbosity', verbosity === 'medium' ? null : verbosity],
      ['logprobs', isTold ? (likely ?? 0) : null],
      ['json_object', request.object('response_format')?.type === 'json_object' || null, 'response_format'],
    ]
    return extras.flatMap(([name, value, field = name]) => (value === null ? [] : [{ name, field, value }]))
  }

  #wantsUsage(): boolean {
    const options = this.#request.object('stream_options')
    return (
      options !== null &&
      this.#of(options, CHAT.streamOptions, 'stream_options').flag('include_usage') === true
    )
  }

  #effort(): ModelRequest['effort'] {
    const word = this.#request.value('reasoning_effort')
    const effort = effortOf(word)
    if (word !== undefined && effort === undefined) this.#request.unknown('reasoning_effort')
    return effort ?? null
  }

  #stopWords(): readonly string[] {
    const stop = this.#request.value('stop')
    const words: readonly unknown[] = Array.isArray(stop) ? stop : stop === undefined ? [] : [stop]
    const texts = words.filter((word) => typeof word === 'string')
    if (texts.length < words.length) this.#request.unknown('stop')
    return texts
  }

  #form(): UnknownRecord | null {
    const stated = this.#request.object('response_format')
    if (!stated) return null
    const form = this.#of(stated, CHAT.form, 'response_format')
    const type = form.text('type')
    if (type === 'json_schema') {
      const schema = form.object('json_schema')
      return schema && this.#of(schema, CHAT.schema, form.field('json_schema')).object('schema')
    }
    if (type !== 'text' && type !== 'json_object') form.unknown('type')
    return null
  }

  #readTool(one: unknown, at: string): void {
    const tool = this.#of(one, CHAT.tool, at)
    const type = tool.text('type')
    if (type !== 'function' && type !== 'custom') {
      tool.unknown('type')
      return
    }
    const isCustom = type === 'custom'
    const of = this.#of(tool.object(type), isCustom ? CHAT.custom : CHAT.function, tool.field(type))
    const facts = {
      description: of.text('description'),
      ...(isCustom
        ? { grammar: this.#grammar(of) }
        : { schema: of.object('parameters'), strict: of.flag('strict') }),
    }
    const named = { name: of.needed('name'), namespace: null, isCustom }
    this.#tools.push(defineTool(named, facts, this.#names, this.#notes))
  }

  #grammar(tool: MemberReader): string | null {
    const stated = tool.object('format')
    if (!stated) return null
    const format = this.#of(stated, CHAT.format, tool.field('format'))
    if (format.text('type') === 'text') return null
    const grammar = format.object('grammar')
    if (!grammar || typeof grammar.definition !== 'string') format.unknown('grammar')
    this.#notes.lose('grammar', format.at)
    return String(grammar?.definition)
  }

  #readMessage(message: MemberReader): void {
    const role = message.text('role')
    if (role === 'assistant') this.#readAssistant(message)
    else if (role === 'tool') {
      const parts = this.#parts(message)
      this.#turns.addResult({
        id: readId(message.needed('tool_call_id'), this.#notes),
        parts,
        isError: false,
      })
    } else if (role === 'user') this.#turns.addUser(this.#parts(message))
    else if (role === 'system' || role === 'developer') this.#turns.addSystem(this.#texts(message))
    else if (role === 'function') this.#notes.never('functions', message.field('role'))
    else message.unknown('role')
  }

  #readAssistant(message: MemberReader): void {
    if (message.value('content') !== undefined) this.#turns.addAssistant(...this.#texts(message))
    const refusal = message.text('refusal')
    if (refusal !== null) this.#turns.addAssistant({ kind: 'text', text: refusal })
    for (const [index, one] of (message.list('tool_calls') ?? []).entries())
      this.#readCall(this.#of(one, CHAT.call, `${message.field('tool_calls')}[${index}]`))
  }

  #readCall(call: MemberReader): void {
    const isCustom = (call.text('type') ?? 'function') === 'custom'
    const kind = isCustom ? 'custom' : 'function'
    const of = this.#of(
      call.object(kind),
      isCustom ? CHAT.calledCustom : CHAT.calledFunction,
      call.field(kind),
    )
    const facts = {
      id: call.needed('id'),
      input: of.text(isCustom ? 'input' : 'arguments') ?? '',
      parse: this.#reading.parse,
    }
    const tool = { name: of.needed('name'), namespace: null, isCustom }
    this.#turns.addAssistant(readCall(tool, facts, this.#names, this.#notes))
  }

  #texts(message: MemberReader): TextPart[] {
    const parts = this.#parts(message)
    const texts = parts.filter((part) => part.kind === 'text')
    if (texts.length < parts.length) message.unknown('content')
    return texts
  }

  #parts(message: MemberReader): ContentPart[] {
    const content = message.value('content')
    if (typeof content === 'string') return [{ kind: 'text', text: content }]
    if (!Array.isArray(content)) {
      message.unknown('content')
      return []
    }
    const at = message.field('content')
    return content.flatMap((part: unknown, index) => this.#part(part, `${at}[${index}]`) ?? [])
  }

  #part(part: unknown, at: string): ContentPart | null {
    const type = isObject(part) ? part.type : null
    if (type === 'text') return { kind: 'text', text: this.#of(part, CHAT.text, at).needed('text') }
    if (type === 'refusal') return { kind: 'text', text: this.#of(part, CHAT.refusal, at).needed('refusal') }
    if (type === 'image_url') {
      const image = this.#of(part, CHAT.image, at)
      const place = image.field('image_url')
      const url = this.#of(image.object('image_url'), CHAT.imageUrl, place).text('url')
      return url === null ? null : imageOf(url, `${place}.url`, this.#notes)
    }
    if (type === 'file') {
      const file = this.#of(this.#of(part, CHAT.file, at).object('file'), CHAT.fileData, `${at}.file`)
      const data = file.text('file_data')
      return data === null
        ? null
        : documentOf(data, file.text('filename'), file.field('file_data'), this.#notes)
    }
    this.#notes.never(type === 'input_audio' ? 'audio' : 'unknown', at)
    return null
  }

  #choice(): Pick<ModelRequest, 'choice' | 'tools'> {
    const choice = this.#request.value('tool_choice')
    const stated = isObject(choice) && choice.type === 'allowed_tools' ? choice.allowed_tools : null
    return readChoice(choice, this.#tools, {
      notes: this.#notes,
      allowed: isObject(stated) ? stated : null,
      at: 'tool_choice.allowed_tools',
      named: (one) => this.#named(one),
    })
  }

  /** Returns the target's name of a tool that is chosen; null: it has none. */
  #named(choice: unknown): string | null {
    if (!isObject(choice)) return null
    const of = choice.type === 'custom' ? choice.custom : choice.type === 'function' ? choice.function : null
    return isObject(of) && typeof of.name === 'string'
      ? this.#names.nameOf({ name: of.name, namespace: null })
      : null
  }
}
