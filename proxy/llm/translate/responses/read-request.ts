import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { effortOf } from '../effort.ts'
import type { TranslationNotes } from '../losses.ts'
import type { RequestReading } from '../model/reading.ts'
import type { ContentPart, ExtraParameter, ModelRequest, TextPart, ToolDefinition } from '../model/request.ts'
import type { CallerTool, ToolNames } from '../names.ts'
import { readChoice } from '../request/choice.ts'
import { documentOf, imageOf } from '../request/media.ts'
import { type MemberClasses, MemberReader, noteKind } from '../request/members.ts'
import { defineTool, readCall, readId } from '../request/tools.ts'
import { TurnBuilder } from '../request/turns.ts'
import { ITEMS, RESPONSES, TOOLS } from './fields.ts'

const LOGPROBS = 'message.output_text.logprobs'

/** Reads a Responses request (openai, ResponseCreateParams). Notes whatever it does not read. */
export function readResponsesRequest(body: unknown, reading: RequestReading): ModelRequest {
  return new ResponsesRequestReader(body, reading).read()
}

class ResponsesRequestReader {
  readonly #request: MemberReader
  readonly #reading: RequestReading
  readonly #notes: TranslationNotes
  readonly #names: ToolNames
  readonly #turns = new TurnBuilder()
  #tools: ToolDefinition[] = []
  readonly #extras: ExtraParameter[] = []

  constructor(body: unknown, reading: RequestReading) {
    this.#reading = reading
    this.#notes = reading.notes
    this.#request = this.#of(body, RESPONSES.request, '')
    this.#names = reading.names
  }

  read(): ModelRequest {
    const request = this.#request
    const lists = [{ tools: request.list('tools') ?? [], at: 'tools' }, ...this.#addedTools()]
    for (const tool of lists.flatMap(({ tools }) => tools)) if (isObject(tool)) this.#names.reserve(tool.name)
    for (const { tools, at } of lists) this.#readTools(tools, at, null, null)
    // Of a tool that is added again, the last definition is in force.
    if (lists.length > 1) this.#tools = [...new Map(this.#tools.map((tool) => [tool.name, tool])).values()]
    const instructions = request.text('instructions')
    if (instructions !== null) this.#turns.addSystem([{ kind: 'text', text: instructions }])
    this.#readInput(request.value('input'))
    this.#readAsides()
    const { effort, form } = { effort: this.#effort(), form: this.#form() }
    const chosen = this.#choice()
    return {
      ...{ system: this.#turns.system, turns: this.#turns.turns, ...chosen, effort, form },
      parallelCalls: request.flag('parallel_tool_calls'),
      maxTokens: request.number('max_output_tokens'),
      stopWords: [],
      temperature: request.number('temperature'),
      topP: request.number('top_p'),
      stream: request.flag('stream') ?? false,
      wantsUsage: true,
      extras: this.#extras,
      isPrefilled: false,
    }
  }

  /** Returns the tools that stand in the input, where Codex puts those of models that it knows. */
  #addedTools(): readonly { readonly tools: readonly unknown[]; readonly at: string }[] {
    const input: unknown = this.#request.value('input')
    return (Array.isArray(input) ? input : []).flatMap((item: unknown, index) => {
      if (!isObject(item) || item.type !== 'additional_tools') return []
      const added = this.#of(item, RESPONSES.addedTools, `input[${index}]`)
      if (added.text('role') !== 'developer') added.unknown('role')
      this.#notes.carry('tool_changes')
      return [{ tools: added.list('tools') ?? [], at: added.field('tools') }]
    })
  }

  #of(object: unknown, classes: MemberClasses, at: string): MemberReader {
    return new MemberReader(object, classes, at, this.#notes)
  }

  /** Reads the members that choose nothing that is told. */
  #readAsides(): void {
    const request = this.#request
    const store = request.flag('store')
    if (store === true) this.#notes.lose('store', 'store')
    else if (store === null) this.#notes.hint('store_absent')
    if (request.text('truncation') === 'auto') this.#notes.lose('truncation', 'truncation')
    const include = request.list('include') ?? []
    if (include.some((one) => one !== LOGPROBS && one !== 'reasoning.encrypted_content'))
      this.#notes.hint('include')
    const likely = request.number('top_logprobs') ?? 0
    const at = include.indexOf(LOGPROBS)
    if (likely > 0 || at >= 0)
      this.#extras.push({
        ...{ name: 'logprobs', value: likely },
        field: at >= 0 ? `include[${at}]` : 'top_logprobs',
      })
    const options = request.object('stream_options')
    if (options) this.#of(options, RESPONSES.streamOptions, 'stream_options')
  }

  #effort(): ModelRequest['effort'] {
    const stated = this.#request.object('reasoning')
    if (!stated) return null
    const reasoning = this.#of(stated, RESPONSES.effort, 'reasoning')
    if (reasoning.value('summary') !== undefined) this.#notes.hint('include')
    const word = reasoning.value('effort')
    const effort = effortOf(word)
    if (word !== undefined && effort === undefined) reasoning.unknown('effort')
    return effort ?? null
  }

  #form(): UnknownRecord | null {
    const stated = this.#request.object('text')
    if (!stated) return null
    const text = this.#of(stated, RESPONSES.textConfig, 'text')
    const verbosity = text.text('verbosity') ?? 'medium'
    if (verbosity !== 'medium')
      this.#extras.push({ name: 'verbosity', field: 'text.verbosity', value: verbosity })
    const format = text.object('format')
    if (!format) return null
    const form = this.#of(format, RESPONSES.form, 'text.format')
    const type = form.text('type')
    if (type === 'json_schema') return form.object('schema')
    if (type === 'json_object') this.#extras.push({ name: 'json_object', field: 'text.format', value: true })
    else if (type !== 'text') form.unknown('type')
    return null
  }

  #readTools(list: readonly unknown[], at: string, namespace: string | null, about: string | null): void {
    for (const [index, one] of list.entries()) {
      const place = `${at}[${index}]`
      const type = isObject(one) ? one.type : null
      if (type === 'namespace' && namespace === null) {
        const inner = this.#of(one, RESPONSES.namespace, place)
        this.#readTools(
          inner.list('tools') ?? [],
          `${place}.tools`,
          inner.needed('name'),
          inner.text('description'),
        )
      } else if (type === 'function' || type === 'custom')
        this.#readTool(one, type === 'custom', place, namespace, about)
      else noteKind(type, TOOLS, place, this.#notes)
    }
  }

  #readTool(
    one: unknown,
    isCustom: boolean,
    at: string,
    namespace: string | null,
    about: string | null,
  ): void {
    const tool = this.#of(one, isCustom ? RESPONSES.custom : RESPONSES.function, at)
    const own = tool.text('description')
    const callers = tool.list('allowed_callers') ?? ['direct']
    if (!callers.includes('direct')) this.#notes.never('callers', tool.field('allowed_callers'))
    const facts = {
      description: [about, own].filter(Boolean).join('\n\n') || null,
      ...(isCustom
        ? { grammar: this.#grammar(tool) }
        : { schema: tool.object('parameters'), strict: tool.flag('strict') }),
    }
    this.#tools.push(
      defineTool({ name: tool.needed('name'), namespace, isCustom }, facts, this.#names, this.#notes),
    )
  }

  #grammar(tool: MemberReader): string | null {
    const stated = tool.object('format')
    if (!stated) return null
    const format = this.#of(stated, RESPONSES.format, tool.field('format'))
    if (format.text('type') === 'text') return null
    if (format.text('type') !== 'grammar') format.unknown('type')
    this.#notes.lose('grammar', format.at)
    format.text('syntax')
    return format.needed('definition')
  }

  #readInput(input: unknown): void {
    if (typeof input === 'string') this.#turns.addUser([{ kind: 'text', text: input }])
    else if (!Array.isArray(input)) this.#request.unknown('input')
    else for (const [index, item] of input.entries()) this.#readItem(item, `input[${index}]`)
  }

  #readItem(item: unknown, at: string): void {
    const type = isObject(item) ? (item.type ?? 'message') : null
    if (type === 'message') this.#readMessage(this.#of(item, RESPONSES.message, at))
    else if (type === 'function_call' || type === 'custom_tool_call')
      this.#readCall(this.#of(item, RESPONSES.call, at), type === 'custom_tool_call')
    else if (type === 'function_call_output' || type === 'custom_tool_call_output')
      this.#readOutput(this.#of(item, RESPONSES.output, at))
    else if (type === 'reasoning') this.#readReasoning(this.#of(item, RESPONSES.reasoning, at))
    // Its tools are read before: calls of the history are told by their names.
    else if (type !== 'additional_tools') noteKind(type, ITEMS, at, this.#notes)
  }

  #readMessage(message: MemberReader): void {
    const role = message.text('role')
    const parts = this.#parts(message.value('content'), message.field('content'))
    if (role === 'user') this.#turns.addUser(parts)
    else if (role === 'assistant') this.#turns.addAssistant(...this.#texts(parts, message))
    else if (role === 'system' || role === 'developer') this.#turns.addSystem(this.#texts(parts, message))
    else message.unknown('role')
  }

  #texts(parts: readonly ContentPart[], message: MemberReader): TextPart[] {
    const texts = parts.filter((part) => part.kind === 'text')
    if (texts.length < parts.length) message.unknown('content')
    return texts
  }

  #parts(content: unknown, at: string): ContentPart[] {
    if (typeof content === 'string') return [{ kind: 'text', text: content }]
    if (!Array.isArray(content)) {
      this.#notes.never('unknown', at)
      return []
    }
    return content.flatMap((part: unknown, index) => this.#part(part, `${at}[${index}]`) ?? [])
  }

  #part(part: unknown, at: string): ContentPart | null {
    const type = isObject(part) ? part.type : null
    if (type === 'input_text' || type === 'output_text') {
      const text = this.#of(part, RESPONSES.text, at)
      if ((text.list('annotations') ?? []).length > 0)
        this.#notes.lose('citations', text.field('annotations'))
      return { kind: 'text', text: text.needed('text') }
    }
    if (type === 'refusal')
      return { kind: 'text', text: this.#of(part, RESPONSES.refusal, at).needed('refusal') }
    if (type === 'input_image') {
      const image = this.#of(part, RESPONSES.image, at)
      const url = image.text('image_url')
      return url === null ? null : imageOf(url, image.field('image_url'), this.#notes)
    }
    if (type === 'input_file') return this.#file(this.#of(part, RESPONSES.file, at))
    this.#notes.never(type === 'input_audio' ? 'audio' : 'unknown', at)
    return null
  }

  #file(file: MemberReader): ContentPart | null {
    const title = file.text('filename')
    const data = file.text('file_data')
    if (data !== null) return documentOf(data, title, file.field('file_data'), this.#notes)
    const url = file.text('file_url')
    if (url !== null && /^https:\/\//i.test(url)) return { kind: 'document', type: null, url, title }
    if (url !== null) file.unknown('file_url')
    return null
  }

  #tool(call: MemberReader, isCustom: boolean): CallerTool {
    return { name: call.needed('name'), namespace: call.text('namespace'), isCustom }
  }

  #readCall(call: MemberReader, isCustom: boolean): void {
    this.#checkCaller(call)
    const facts = {
      id: call.needed('call_id'),
      input: call.text(isCustom ? 'input' : 'arguments') ?? '',
      parse: this.#reading.parse,
    }
    this.#turns.addAssistant(readCall(this.#tool(call, isCustom), facts, this.#names, this.#notes))
  }

  #readOutput(output: MemberReader): void {
    this.#checkCaller(output)
    const parts = this.#parts(output.value('output'), output.field('output'))
    this.#turns.addResult({ id: readId(output.needed('call_id'), this.#notes), parts, isError: false })
  }

  #checkCaller(item: MemberReader): void {
    const caller = item.object('caller')
    if (caller && caller.type !== 'direct') this.#notes.never('callers', item.field('caller'))
  }

  #readReasoning(item: MemberReader): void {
    const exact = this.#reading.openReasoning(item.value('encrypted_content'))
    if (exact) this.#turns.addAssistant({ kind: 'reasoning', exact })
    else this.#notes.hint('foreign_reasoning')
  }

  #choice(): Pick<ModelRequest, 'choice' | 'tools'> {
    const choice = this.#request.value('tool_choice')
    return readChoice(choice, this.#tools, {
      notes: this.#notes,
      allowed: isObject(choice) && choice.type === 'allowed_tools' ? choice : null,
      at: 'tool_choice',
      named: (one) => this.#named(one),
    })
  }

  /** Returns the target's name of a tool that is chosen; null: it has none. */
  #named(choice: unknown): string | null {
    if (!isObject(choice) || (choice.type !== 'function' && choice.type !== 'custom')) return null
    const { name, namespace = null } = choice
    if (typeof name !== 'string' || !(namespace === null || typeof namespace === 'string')) return null
    return this.#names.nameOf({ name, namespace })
  }
}
