import { isObject, type JsonObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { TokenCount, UsageNames } from './dialect.ts'
import { TOO_LONG } from './member-picker.ts'

export type TokenCounts = Readonly<Partial<Record<TokenCount, number>>>

/** Tokens that are no part of the answer's own: of another model, or at another rate. */
export interface FurtherUsage extends JsonObject {
  readonly kind: string
  readonly model?: string
  readonly tokens: TokenCounts
}

export interface ProviderUsage {
  /** Whole numbers. `input` is everything that the model read, cached parts included. */
  readonly tokens?: TokenCounts
  readonly further?: readonly FurtherUsage[]
  /** Web searches that the provider ran. */
  readonly searches?: number
  /** Uses of further tools that the provider ran, by tool. */
  readonly server_tools?: Readonly<Record<string, number>>
  readonly service_tier?: string
  readonly speed?: string
  /** The place where the model ran. */
  readonly geo?: string
  /** The model that answered, as the provider names it. */
  readonly upstream_model?: string
}

/** The reasons why counts are missing, or may not be all (docs/ledger.md#tokens-unknown). A closed list. */
export type TokensUnknown =
  | 'not_stated'
  | 'partly'
  | 'no_answer'
  | 'failed'
  | 'cut_off'
  | 'not_numbers'
  | 'other_names'
  | 'too_long'
  | 'encoded'
  | 'unreadable'

type UsageFlaw = 'not_numbers' | 'other_names' | 'too_long'

const MAX_NAME = 256
const MAX_FURTHER = 16
/** The tool whose uses are `searches`. */
const SEARCH = 'web_search'

/** The statements of an answer's events so far; a later one replaces an earlier one of the same name. */
export class StatedUsage {
  readonly #names: UsageNames
  readonly #tokens: StatedTokens
  readonly #words = new Map<string, string>()
  readonly #uses = new Map<string, number>()
  /** Uses that events of their own tell of, one by one. */
  readonly #items = new Map<string, number>()
  #iterations: unknown = null
  #imageTool: unknown = null
  #flaw: UsageFlaw | null = null

  constructor(names: UsageNames) {
    this.#names = names
    this.#tokens = new StatedTokens(names)
  }

  get isNamed(): boolean {
    return this.#words.has('model')
  }

  /** The reason why a count that was stated is not known. */
  get flaw(): UsageFlaw | null {
    return this.#tokens.flaw ?? this.#flaw
  }

  /** True: of the counts that an answer of the endpoint has, one was not stated. */
  get isPartial(): boolean {
    const { input, output, total } = this.#tokens.all()
    return input === undefined || (output === undefined && !this.#names.isInputOnly && total !== input)
  }

  /** Takes a document, or the members picked from one. */
  add(root: UnknownRecord): void {
    for (const name of this.#names.holders) {
      const holder = root[name]
      for (const one of Array.isArray(holder) ? holder : [holder]) this.#readHolder(one)
    }
    this.#readHolder(root)
    const { event, member } = this.#names.items
    if (root.type !== event) return
    const tool = this.#toolOf(root[member])
    if (tool !== undefined) this.#items.set(tool, (this.#items.get(tool) ?? 0) + 1)
  }

  #readHolder(holder: unknown): void {
    if (!isObject(holder)) return
    const { usage, model, service_tier: tier } = holder
    this.#readTools(holder)
    if (isObject(usage)) {
      if (this.#tokens.add(usage) === 0 && Object.keys(usage).length > 0) this.#flaw ??= 'other_names'
      this.#iterations = usage.iterations ?? this.#iterations
      this.#keepWord('model', model)
      for (const word of [tier, usage.service_tier]) this.#keepWord('service_tier', word)
      this.#keepWord('speed', usage.speed)
      this.#keepWord('geo', usage.inference_geo)
      return
    }
    if (!this.isNamed) this.#keepWord('model', model)
    if (usage === TOO_LONG) this.#flaw = 'too_long'
    else if ((usage ?? null) !== null) this.#flaw = 'not_numbers'
  }

  #keepWord(name: string, value: unknown): void {
    if (typeof value !== 'string' || value === '' || value.length > MAX_NAME) return
    this.#words.set(name, value.toWellFormed())
  }

  #readTools(holder: UnknownRecord): void {
    const { tools, items, imageTool } = this.#names
    if ((holder.usage ?? holder.tool_usage ?? null) !== null)
      for (const [path, tool] of Object.entries(tools)) {
        const count = valueAt(holder, path)
        if (isCount(count)) this.#uses.set(tool, count)
        else if ((count ?? null) !== null) this.#flaw = 'not_numbers'
      }
    if (imageTool !== undefined) this.#imageTool = valueAt(holder, imageTool) ?? this.#imageTool
    const list = holder[items.list]
    if (!Array.isArray(list)) return
    const listed = Map.groupBy(list, (item) => this.#toolOf(item))
    for (const [tool, { length }] of listed)
      if (tool !== undefined) this.#items.set(tool, Math.max(length, this.#items.get(tool) ?? 0))
  }

  /** Returns the tool that an item of an answer is a use of. */
  #toolOf(item: unknown): string | undefined {
    if (!isObject(item)) return undefined
    const { type, name, action } = item
    // Opening a page that was found is no search.
    if (isObject(action) && type === 'web_search_call' && (action.type ?? 'search') !== 'search')
      return undefined
    const kind = String(type === 'server_tool_use' ? name : (type ?? ''))
    const { tools } = this.#names.items
    return Object.hasOwn(tools, kind) ? tools[kind] : undefined
  }

  usage(): ProviderUsage {
    const { compaction, further } = this.#furtherUsage()
    const tokens = compaction.reduce(sumOfTokens, this.#tokens.counts())
    const uses = new Map([...this.#items, ...this.#uses].filter(([, count]) => count > 0))
    const searches = uses.get(SEARCH)
    uses.delete(SEARCH)
    const { model, ...words } = Object.fromEntries(this.#words)
    return {
      ...(Object.keys(tokens).length > 0 && { tokens }),
      ...(further.length > 0 && { further }),
      ...(searches !== undefined && { searches }),
      ...(uses.size > 0 && { server_tools: Object.fromEntries(uses) }),
      ...words,
      ...(model !== undefined && { upstream_model: model }),
    }
  }

  /** Reads what the answer's own counts leave out: the work of other models, and of a compaction. */
  #furtherUsage(): {
    readonly compaction: readonly TokenCounts[]
    readonly further: readonly FurtherUsage[]
  } {
    const steps = (Array.isArray(this.#iterations) ? this.#iterations : []).filter(isObject)
    // The answer's own counts are then those of the model that served.
    const isServedByOther = steps.some(({ type }) => type === 'fallback_message')
    const compaction: TokenCounts[] = []
    const further = new Map<string, FurtherUsage>()
    const addFurther = (kind: string, model: unknown, tokens: TokenCounts): void => {
      const named = typeof model === 'string' && model.length <= MAX_NAME ? model.toWellFormed() : undefined
      const key = JSON.stringify([kind, named])
      const { tokens: before = {} } = further.get(key) ?? {}
      if (further.size === MAX_FURTHER && !further.has(key)) this.#flaw = 'too_long'
      else
        further.set(key, {
          kind,
          ...(named !== undefined && { model: named }),
          tokens: sumOfTokens(before, tokens),
        })
    }
    for (const step of steps) {
      const { type, model } = step
      if (type === 'compaction') compaction.push(this.#countsIn(step))
      else if (type === 'advisor_message') addFurther('advisor', model, this.#countsIn(step))
      else if (type === 'message' && isServedByOther) addFurther('fallen_back', model, this.#countsIn(step))
    }
    const images = isObject(this.#imageTool) ? this.#countsIn(this.#imageTool) : {}
    if (Object.values(images).some((count) => count > 0)) addFurther('image_generation', undefined, images)
    return { compaction, further: [...further.values()] }
  }

  #countsIn(usage: UnknownRecord): TokenCounts {
    const stated = new StatedTokens(this.#names)
    stated.add(usage)
    return stated.counts()
  }
}

/** The token counts of one object of usage, or of several that replace each other's. */
class StatedTokens {
  readonly #names: UsageNames
  readonly #stated = new Map<string, number>()
  flaw: 'not_numbers' | null = null

  constructor(names: UsageNames) {
    this.#names = names
  }

  /** Returns how many of the names are members. */
  add(usage: UnknownRecord): number {
    let known = 0
    for (const names of Object.values(this.#names.tokens)) known += this.#keep(usage, names)
    this.#keep(usage, this.#names.besideInput)
    return known
  }

  all(): TokenCounts {
    const { tokens } = this.#names
    const counts: Partial<Record<TokenCount, number>> = {}
    // Its keys are these counts.
    for (const count of Object.keys(tokens) as TokenCount[]) {
      const stated = count === 'input' ? this.#input(tokens.input) : this.#first(tokens[count])
      if (stated !== undefined) counts[count] = stated
    }
    return counts
  }

  /** Returns the counts: the total only if it is not the sum of its parts, and so says more than they do. */
  counts(): TokenCounts {
    const { total, ...parts } = this.all()
    return total === undefined || total === (parts.input ?? 0) + (parts.output ?? 0)
      ? parts
      : { ...parts, total }
  }

  #keep(usage: UnknownRecord, names: readonly string[]): number {
    let known = 0
    for (const name of names) {
      const value = valueAt(usage, name) ?? null
      if (value === null) continue
      known += 1
      if (isCount(value)) this.#stated.set(name, value)
      else this.flaw = 'not_numbers'
    }
    return known
  }

  #input(names: readonly string[]): number | undefined {
    const input = this.#first(names)
    if (input === undefined) return undefined
    const beside = this.#names.besideInput.map((name) => this.#stated.get(name) ?? 0)
    const sum = beside.reduce((all, one) => all + one, input)
    if (Number.isSafeInteger(sum)) return sum
    this.flaw = 'not_numbers'
    return undefined
  }

  #first(names: readonly string[]): number | undefined {
    const name = names.find((one) => this.#stated.has(one))
    return name === undefined ? undefined : this.#stated.get(name)
  }
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

/** Leaves out a sum that is no safe number. */
function sumOfTokens(one: TokenCounts, other: TokenCounts): TokenCounts {
  const sums = { ...one }
  // Its keys are these counts.
  for (const count of Object.keys(other) as TokenCount[]) {
    const sum = (one[count] ?? 0) + (other[count] ?? 0)
    if (Number.isSafeInteger(sum)) sums[count] = sum
  }
  return sums
}

/** `path`: members of members, with dots. */
function valueAt(holder: unknown, path: string): unknown {
  let value = holder
  for (const name of path.split('.')) value = isObject(value) ? value[name] : undefined
  return value
}
