import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { effortOf, effortOfBudget } from '../effort.ts'
import type { TranslationNotes } from '../losses.ts'
import type { RequestReading } from '../model/reading.ts'
import type {
  ContentPart,
  ExtraParameter,
  ModelRequest,
  ReasoningEffort,
  TextPart,
  ToolChoice,
  ToolDefinition,
} from '../model/request.ts'
import type { ToolNames } from '../names.ts'
import { numberOf } from '../request/exact-json.ts'
import { MESSAGES, MESSAGES_BLOCKS, MESSAGES_TOOLS } from '../request/fields.ts'
import { type MemberClasses, MemberReader, noteKind } from '../request/members.ts'
import { defineTool, readId } from '../request/tools.ts'
import { TurnBuilder } from '../request/turns.ts'

/** The line of Claude Code about its own billing: another one in each request, it defeats every prefix cache. */
const ATTRIBUTION = 'x-anthropic-billing-header:'

/** Each is looked for in all of an answer, where the target does not take it. */
const [MAX_STOP_WORDS, MAX_STOP_WORD] = [16, 1_024]

/** Reads a Messages request (@anthropic-ai/sdk, MessageCreateParams). Notes whatever it does not read. */
export function readMessagesRequest(body: unknown, reading: RequestReading): ModelRequest {
  return new MessagesRequestReader(body, reading).read()
}

class MessagesRequestReader {
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
    this.#request = this.#of(body, MESSAGES.request, '')
  }

  read(): ModelRequest {
    const request = this.#request
    for (const [index, one] of (request.list('tools') ?? []).entries()) this.#readTool(one, `tools[${index}]`)
    this.#turns.addSystem(this.#systemTexts())
    const messages = request.list('messages') ?? []
    for (const [index, one] of messages.entries()) this.#readMessage(one, `messages[${index}]`)
    const { effort, form } = this.#output()
    const { choice, parallelCalls } = this.#choice()
    return {
      ...{ system: this.#turns.system, turns: this.#turns.turns, tools: this.#tools, choice, parallelCalls },
      maxTokens: request.number('max_tokens'),
      stopWords: this.#stopWords(),
      temperature: request.number('temperature'),
      topP: request.number('top_p'),
      ...{ effort, form, extras: this.#extras() },
      stream: request.flag('stream') ?? false,
      wantsUsage: true,
      isPrefilled: this.#turns.turns.at(-1)?.role === 'assistant',
    }
  }

  #of(object: unknown, classes: MemberClasses, at: string): MemberReader {
    return new MemberReader(object, classes, at, this.#notes)
  }

  #extras(): readonly ExtraParameter[] {
    const value = this.#request.number('top_k')
    return value === null ? [] : [{ name: 'top_k', field: 'top_k', value }]
  }

  #stopWords(): readonly string[] {
    const words = this.#request.list('stop_sequences') ?? []
    const told = words.filter(
      (word): word is string => typeof word === 'string' && word.length <= MAX_STOP_WORD,
    )
    if (told.length < words.length || told.length > MAX_STOP_WORDS) this.#request.unknown('stop_sequences')
    return told
  }

  #output(): { readonly effort: ReasoningEffort | null; readonly form: UnknownRecord | null } {
    const stated = this.#request.object('output_config')
    const output = stated && this.#of(stated, MESSAGES.output, 'output_config')
    const word = output?.value('effort')
    const effort = effortOf(word)
    if (word !== undefined && effort === undefined) output?.unknown('effort')
    const format = output?.object('format') ?? null
    const form = format && this.#of(format, MESSAGES.format, 'output_config.format')
    if (form && form.text('type') !== 'json_schema') form.unknown('type')
    return { effort: this.#thinking() ?? effort ?? null, form: form?.object('schema') ?? null }
  }

  /** Reads thinking that says more than the effort does; null: it does not. */
  #thinking(): ReasoningEffort | null {
    const stated = this.#request.object('thinking')
    if (!stated) return null
    const thinking = this.#of(stated, MESSAGES.thinking, 'thinking')
    const type = thinking.text('type')
    if (type === 'disabled') return 'none'
    if (type !== 'enabled' && type !== 'adaptive' && type !== 'between_tools') thinking.unknown('type')
    const budget = numberOf(thinking.value('budget_tokens'))
    if (budget === null) return null
    this.#notes.hint('thinking_budget')
    return effortOfBudget(budget)
  }

  #systemTexts(): TextPart[] {
    const system = this.#request.value('system')
    if (system === undefined) return []
    return this.#texts(system, 'system').filter(({ text }) => {
      const isAttribution = text.startsWith(ATTRIBUTION)
      if (isAttribution) this.#notes.hint('attribution')
      return !isAttribution
    })
  }

  #texts(content: unknown, at: string): TextPart[] {
    const parts = this.#parts(content, at)
    const texts = parts.filter((part) => part.kind === 'text')
    if (texts.length < parts.length) this.#notes.never('unknown', at)
    return texts
  }

  #readTool(one: unknown, at: string): void {
    const type = isObject(one) ? (one.type ?? 'custom') : null
    if (type !== 'custom') {
      noteKind(typeof type === 'string' ? type.replace(/_\d{8}$/, '') : type, MESSAGES_TOOLS, at, this.#notes)
      return
    }
    const tool = this.#of(one, MESSAGES.tool, at)
    if (tool.value('input_examples') !== undefined)
      this.#notes.lose('input_examples', tool.field('input_examples'))
    const callers = tool.list('allowed_callers') ?? ['direct']
    if (!callers.includes('direct')) this.#notes.never('callers', tool.field('allowed_callers'))
    const facts = {
      description: tool.text('description'),
      schema: tool.object('input_schema'),
      strict: tool.flag('strict'),
    }
    const named = { name: tool.needed('name'), namespace: null, isCustom: false }
    this.#tools.push(defineTool(named, facts, this.#names, this.#notes))
  }

  #readMessage(one: unknown, at: string): void {
    const message = this.#of(one, MESSAGES.message, at)
    const role = message.text('role')
    const content = message.value('content')
    if (role === 'system') this.#turns.addSystem(this.#texts(content, message.field('content')))
    else if (role !== 'user' && role !== 'assistant') message.unknown('role')
    else if (typeof content === 'string') this.#addText(role, content)
    else if (!Array.isArray(content)) message.unknown('content')
    else
      for (const [index, block] of content.entries())
        this.#readBlock(block, role, `${message.field('content')}[${index}]`)
  }

  #addText(role: 'user' | 'assistant', text: string): void {
    if (role === 'user') this.#turns.addUser([{ kind: 'text', text }])
    else this.#turns.addAssistant({ kind: 'text', text })
  }

  #readBlock(block: unknown, role: 'user' | 'assistant', at: string): void {
    const type = isObject(block) ? block.type : null
    if (type === 'tool_use' && role === 'assistant') this.#readCall(this.#of(block, MESSAGES.call, at))
    else if (type === 'tool_result' && role === 'user') this.#readResult(this.#of(block, MESSAGES.result, at))
    else if (type === 'thinking' || type === 'redacted_thinking') this.#readThinking(block)
    else {
      const parts = this.#part(block, at)
      if (role === 'user') this.#turns.addUser(parts)
      else this.#turns.addAssistant(...parts.filter((part) => part.kind === 'text'))
    }
  }

  #readCall(call: MemberReader): void {
    this.#checkCaller(call)
    const named = { name: call.needed('name'), namespace: null }
    const id = readId(call.needed('id'), this.#notes)
    const input = call.object('input') ?? {}
    this.#turns.addAssistant({ kind: 'call', id, name: this.#names.nameOf(named), input })
  }

  #checkCaller(call: MemberReader): void {
    const caller = call.object('caller')
    if (caller && caller.type !== 'direct') this.#notes.never('callers', call.field('caller'))
  }

  #readResult(result: MemberReader): void {
    const content = result.value('content')
    const parts = content === undefined ? [] : this.#parts(content, result.field('content'))
    const isError = result.flag('is_error') === true
    if (isError) this.#notes.carry('is_error')
    this.#turns.addResult({ id: readId(result.needed('tool_use_id'), this.#notes), parts, isError })
  }

  /** The signature of a block that we have given is the target's own reasoning, sealed. */
  #readThinking(block: unknown): void {
    const exact = isObject(block) ? this.#reading.openReasoning(block.signature ?? block.data) : null
    if (exact) this.#turns.addAssistant({ kind: 'reasoning', exact })
    else this.#notes.hint('foreign_reasoning')
  }

  #parts(content: unknown, at: string): ContentPart[] {
    if (typeof content === 'string') return [{ kind: 'text', text: content }]
    if (Array.isArray(content))
      return content.flatMap((block: unknown, index) => this.#part(block, `${at}[${index}]`))
    this.#notes.never('unknown', at)
    return []
  }

  #part(block: unknown, at: string): ContentPart[] {
    const type = isObject(block) ? block.type : null
    if (type === 'text') {
      const text = this.#of(block, MESSAGES.text, at)
      if ((text.list('citations') ?? []).length > 0) this.#notes.lose('citations', text.field('citations'))
      return [{ kind: 'text', text: text.needed('text') }]
    }
    if (type === 'image') return this.#media('image', this.#of(block, MESSAGES.image, at))
    if (type === 'document') return this.#document(this.#of(block, MESSAGES.document, at))
    if (type === 'search_result') return this.#searchResult(this.#of(block, MESSAGES.searchResult, at))
    if (type === 'tool_reference') {
      this.#notes.carry('tool_reference')
      const name = this.#of(block, MESSAGES.toolReference, at).needed('tool_name')
      return [{ kind: 'text', text: `[tool ${this.#names.nameOf({ name, namespace: null })} is available]` }]
    }
    noteKind(type, MESSAGES_BLOCKS, at, this.#notes)
    return []
  }

  #searchResult(result: MemberReader): ContentPart[] {
    this.#notes.carry('document_text')
    if (result.value('citations') !== undefined) this.#notes.lose('citations', result.field('citations'))
    const texts = this.#texts(result.value('content'), result.field('content'))
    return [{ kind: 'text', text: `${result.needed('title')} (${result.needed('source')})` }, ...texts]
  }

  #document(document: MemberReader): ContentPart[] {
    const citations = document.object('citations')
    if (citations && citations.enabled === true) this.#notes.lose('citations', document.field('citations'))
    const context = document.text('context')
    const parts = this.#media('document', document)
    return context === null ? parts : [{ kind: 'text', text: context }, ...parts]
  }

  #media(kind: 'image' | 'document', block: MemberReader): ContentPart[] {
    const source = this.#of(block.object('source'), MESSAGES.source, block.field('source'))
    const title = kind === 'document' ? block.text('title') : null
    const type = source.text('type')
    if (type === 'base64')
      return [{ kind, type: source.needed('media_type'), data: source.needed('data'), title }]
    if (type === 'url') return [{ kind, type: null, url: source.needed('url'), title }]
    if (type === 'text') return [{ kind, type: 'text/plain', text: source.needed('data'), title }]
    if (type === 'content') return this.#parts(source.value('content'), source.field('content'))
    this.#notes.never(type === 'file' ? 'provider_state' : 'unknown', source.at)
    return []
  }

  #choice(): Pick<ModelRequest, 'choice' | 'parallelCalls'> {
    const stated = this.#request.object('tool_choice')
    if (!stated) return { choice: null, parallelCalls: null }
    const choice = this.#of(stated, MESSAGES.choice, 'tool_choice')
    const parallelCalls = choice.flag('disable_parallel_tool_use') === true ? false : null
    return { choice: this.#chosen(choice), parallelCalls }
  }

  #chosen(choice: MemberReader): ToolChoice | null {
    const kind = choice.text('type')
    if (kind === 'auto' || kind === 'any' || kind === 'none') return { kind }
    const name = this.#names.nameOf({ name: choice.text('name') ?? '', namespace: null })
    if (kind === 'tool' && this.#tools.some((tool) => tool.name === name)) return { kind, name }
    this.#notes.never('tool_choice', 'tool_choice')
    return null
  }
}
