import { isObject, type UnknownRecord } from '../../../../db/support/json.ts'
import { effortOf, effortOfBudget } from '../effort.ts'
import type { TranslationNotes } from '../losses.ts'
import type { RequestReading } from '../model/reading.ts'
import type {
  ExtraParameter,
  ModelRequest,
  ReasoningEffort,
  TextPart,
  ToolChoice,
  ToolDefinition,
} from '../model/request.ts'
import type { ToolNames } from '../names.ts'
import { numberOf } from '../request/exact-json.ts'
import { type MemberClasses, MemberReader, noteKind } from '../request/members.ts'
import { defineTool, readId } from '../request/tools.ts'
import { TurnBuilder } from '../request/turns.ts'
import { MESSAGES, MESSAGES_TOOLS } from './fields.ts'
import { MessageContentReader } from './read-content.ts'

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
  readonly #content: MessageContentReader
  readonly #turns = new TurnBuilder()
  readonly #tools: ToolDefinition[] = []
  /** The target's names of tools that are no longer available at the end. */
  readonly #withdrawn = new Set<string>()
  /** The effort that the last system message states; null: none does. */
  #laterEffort: ReasoningEffort | null = null

  constructor(body: unknown, reading: RequestReading) {
    this.#reading = reading
    this.#notes = reading.notes
    this.#names = reading.names
    this.#content = new MessageContentReader(reading)
    this.#request = this.#of(body, MESSAGES.request, '')
  }

  read(): ModelRequest {
    const request = this.#request
    for (const [index, one] of (request.list('tools') ?? []).entries())
      this.#tools.push(...this.#readTool(one, `tools[${index}]`))
    this.#turns.addSystem(this.#systemTexts())
    const messages = request.list('messages') ?? []
    const lastUser = messages.findLastIndex((one) => isObject(one) && one.role === 'user')
    for (const [index, one] of messages.entries())
      if (isObject(one) && one.role === 'system')
        this.#readSystem(one, `messages[${index}]`, index > lastUser)
      else this.#readMessage(one, `messages[${index}]`)
    const { effort, form } = this.#output()
    const tools = this.#tools.filter(({ name }) => !this.#withdrawn.has(name))
    const { choice, parallelCalls } = this.#choice(tools)
    return {
      ...{ system: this.#turns.system, turns: this.#turns.turns, tools, choice, parallelCalls },
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
    const effort = this.#laterEffort ?? (output && readEffort(output))
    const format = output?.object('format') ?? null
    const form = format && this.#of(format, MESSAGES.format, 'output_config.format')
    if (form && form.text('type') !== 'json_schema') form.unknown('type')
    return { effort: this.#thinking() ?? effort, form: form?.object('schema') ?? null }
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
    return this.#content.texts(system, 'system').filter(({ text }) => {
      const isAttribution = text.startsWith(ATTRIBUTION)
      if (isAttribution) this.#notes.hint('attribution')
      return !isAttribution
    })
  }

  /** Returns the tool; none if it is not the caller's own. */
  #readTool(one: unknown, at: string): readonly ToolDefinition[] {
    const type = isObject(one) ? (one.type ?? 'custom') : null
    if (type !== 'custom') {
      noteKind(typeof type === 'string' ? type.replace(/_\d{8}$/, '') : type, MESSAGES_TOOLS, at, this.#notes)
      return []
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
    return [defineTool(named, facts, this.#names, this.#notes)]
  }

  #readMessage(one: unknown, at: string): void {
    const message = this.#of(one, MESSAGES.message, at)
    const role = message.text('role')
    const content = message.value('content')
    if (role !== 'user' && role !== 'assistant') message.unknown('role')
    else if (typeof content === 'string') this.#addText(role, content)
    else if (!Array.isArray(content)) message.unknown('content')
    else
      for (const [index, block] of content.entries())
        this.#readBlock(block, role, `${message.field('content')}[${index}]`)
  }

  /** Reads a system message among the others. `isLast`: no message of the user follows it. */
  #readSystem(one: UnknownRecord, at: string, isLast: boolean): void {
    const message = this.#of(one, MESSAGES.systemMessage, at)
    const until = message.text('clear_at') ?? 'never'
    if (until !== 'never' && until !== 'next_user_message') message.unknown('clear_at')
    const output = message.object('output_config')
    const effort =
      output && readEffort(this.#of(output, MESSAGES.systemOutput, message.field('output_config')))
    this.#laterEffort = effort ?? this.#laterEffort
    const isShown = until === 'never' || isLast
    const parts = this.#systemParts(message, isShown)
    if (parts.length > 0) this.#turns.addSystem(parts)
  }

  /** A message that is no longer shown still changes tools. */
  #systemParts(message: MemberReader, isShown: boolean): TextPart[] {
    const content = message.value('content')
    const at = message.field('content')
    if (content === undefined && message.value('output_config') !== undefined) return []
    if (!Array.isArray(content)) return isShown ? this.#content.texts(content, at) : []
    return content.flatMap((block: unknown, index) => {
      const place = `${at}[${index}]`
      const type = isObject(block) ? block.type : null
      if (type === 'tool_addition' || type === 'tool_removal')
        return this.#readToolChange(this.#of(block, MESSAGES.toolChange, place), type === 'tool_addition')
      const texts = this.#content.texts([block], at)
      return isShown ? texts : []
    })
  }

  #readToolChange(change: MemberReader, isAddition: boolean): TextPart[] {
    const name = this.#changedTool(change, isAddition)
    if (name === null) return []
    this.#notes.carry('tool_changes')
    if (isAddition) this.#withdrawn.delete(name)
    else this.#withdrawn.add(name)
    return [{ kind: 'text', text: `[tool ${name} is ${isAddition ? 'available' : 'no longer available'}]` }]
  }

  /** Returns the target's name of a tool that is added or withdrawn; null: it is none of the caller's own. */
  #changedTool(change: MemberReader, isAddition: boolean): string | null {
    const stated = this.#of(change.value('tool'), MESSAGES.changedTool, change.field('tool'))
    const type = stated.text('type')
    if (type === 'tool_definition' && isAddition) {
      const [tool] = this.#readTool(stated.value('definition'), stated.field('definition'))
      if (!tool) return null
      const before = this.#tools.findIndex(({ name }) => name === tool.name)
      if (before < 0) this.#tools.push(tool)
      else this.#tools[before] = tool
      return tool.name
    }
    const name = this.#names.nameOf({ name: stated.text('name') ?? '', namespace: null })
    if (type === 'tool_reference' && this.#tools.some((tool) => tool.name === name)) return name
    const isHosted = type === 'mcp_tool_reference' || type === 'mcp_toolset_reference'
    this.#notes.never(isHosted ? 'hosted_servers' : 'unknown', stated.at)
    return null
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
      const parts = this.#content.part(block, at)
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
    const parts = content === undefined ? [] : this.#content.parts(content, result.field('content'))
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

  #choice(tools: readonly ToolDefinition[]): Pick<ModelRequest, 'choice' | 'parallelCalls'> {
    const stated = this.#request.object('tool_choice')
    if (!stated) return { choice: null, parallelCalls: null }
    const choice = this.#of(stated, MESSAGES.choice, 'tool_choice')
    const parallelCalls = choice.flag('disable_parallel_tool_use') === true ? false : null
    return { choice: this.#chosen(choice, tools), parallelCalls }
  }

  #chosen(choice: MemberReader, tools: readonly ToolDefinition[]): ToolChoice | null {
    const kind = choice.text('type')
    if (kind === 'auto' || kind === 'any' || kind === 'none') return { kind }
    const name = this.#names.nameOf({ name: choice.text('name') ?? '', namespace: null })
    if (kind === 'tool' && tools.some((tool) => tool.name === name)) return { kind, name }
    this.#notes.never('tool_choice', 'tool_choice')
    return null
  }
}

function readEffort(output: MemberReader): ReasoningEffort | null {
  const word = output.value('effort')
  const effort = effortOf(word)
  if (word !== undefined && effort === undefined) output.unknown('effort')
  return effort ?? null
}
