import {
  isObject,
  type MemberPaths,
  memberPaths,
  readMembers,
  type UnknownRecord,
} from '../../../db/support/json.ts'
import type { TokenCount, UsageNames } from './dialect.ts'
import {
  type FurtherUsage,
  furtherUsageIn,
  MAX_NAME,
  sumOfTokens,
  type TokenCounts,
} from './further-usage.ts'
import { TOO_LONG } from './member-picker.ts'

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

/** The tool whose uses are `searches`. */
const SEARCH = 'web_search'

type ProviderWord = 'model' | 'service_tier' | 'speed' | 'geo'

/** The statements of an answer's events so far; a later one replaces an earlier one of the same name. */
export class StatedUsage {
  readonly #names: PreparedNames
  readonly #tokens: StatedTokens
  readonly #words: Partial<Record<ProviderWord, string>> = {}
  readonly #uses = new Map<string, number>()
  /** Uses that events of their own tell of, one by one. */
  readonly #items = new Map<string, number>()
  #iterations: unknown = null
  #imageTool: unknown = null
  #flaw: UsageFlaw | null = null

  constructor(names: UsageNames) {
    this.#names = preparedOf(names)
    this.#tokens = new StatedTokens(this.#names)
  }

  get isNamed(): boolean {
    return this.#words.model !== undefined
  }

  /** The reason why a count that was stated is not known. */
  get flaw(): UsageFlaw | null {
    return this.#tokens.flaw ?? this.#flaw
  }

  /** True: of the counts that an answer of the endpoint has, one was not stated. */
  get isPartial(): boolean {
    const { input, output, total } = this.#tokens
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

  #keepWord(name: ProviderWord, value: unknown): void {
    if (typeof value !== 'string' || value === '' || value.length > MAX_NAME) return
    this.#words[name] = value.toWellFormed()
  }

  #readTools(holder: UnknownRecord): void {
    const { tools, items, toolPaths, imagePaths } = this.#names
    readMembers(holder, toolPaths, (path, count) => {
      const tool = tools[path]
      if (tool !== undefined && isCount(count)) this.#uses.set(tool, count)
      else this.#flaw = 'not_numbers'
    })
    readMembers(holder, imagePaths, (_, tokens) => {
      this.#imageTool = tokens
    })
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
    const { model, ...words } = this.#words
    return {
      ...this.#countedTokens(),
      ...this.#usesOfTools(),
      ...words,
      ...(model !== undefined && { upstream_model: model }),
    }
  }

  #countedTokens(): Pick<ProviderUsage, 'tokens' | 'further'> {
    const own = this.#tokens.counts()
    const [iterations, imageTool] = [this.#iterations, this.#imageTool]
    const isAll = iterations === null && imageTool === null
    const others = isAll ? null : furtherUsageIn(iterations, imageTool, (usage) => this.#countsIn(usage))
    if (others?.isTooLong) this.#flaw = 'too_long'
    const tokens = others ? others.compaction.reduce(sumOfTokens, own) : own
    return {
      ...(Object.keys(tokens).length > 0 && { tokens }),
      ...(others && others.further.length > 0 && { further: others.further }),
    }
  }

  #usesOfTools(): Pick<ProviderUsage, 'searches' | 'server_tools'> {
    if (this.#items.size + this.#uses.size === 0) return {}
    const uses = new Map([...this.#items, ...this.#uses].filter(([, count]) => count > 0))
    const searches = uses.get(SEARCH)
    uses.delete(SEARCH)
    return {
      ...(searches !== undefined && { searches }),
      ...(uses.size > 0 && { server_tools: Object.fromEntries(uses) }),
    }
  }

  #countsIn(usage: UnknownRecord): TokenCounts {
    const stated = new StatedTokens(this.#names)
    stated.add(usage)
    return stated.counts()
  }
}

/** Names, prepared to be looked up in every answer. */
interface PreparedNames extends UsageNames {
  readonly tokenPaths: MemberPaths
  readonly toolPaths: MemberPaths
  readonly imagePaths: MemberPaths
  /** Every count but those of the input and the total. */
  readonly parts: readonly { readonly count: TokenCount; readonly paths: readonly string[] }[]
}

const prepared = new WeakMap<UsageNames, PreparedNames>()

function preparedOf(names: UsageNames): PreparedNames {
  const before = prepared.get(names)
  if (before) return before
  const { tokens, tools, imageTool } = names
  // Its keys are these counts.
  const counts = Object.keys(tokens) as TokenCount[]
  const made: PreparedNames = {
    ...names,
    tokenPaths: memberPaths(Object.values(tokens).flat()),
    toolPaths: memberPaths(Object.keys(tools)),
    imagePaths: memberPaths(imageTool === undefined ? [] : [imageTool]),
    parts: counts
      .filter((count) => count !== 'input' && count !== 'total')
      .map((count) => ({ count, paths: tokens[count] })),
  }
  prepared.set(names, made)
  return made
}

const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 0

/** The token counts of one object of usage, or of several that replace each other's. */
class StatedTokens {
  readonly #names: PreparedNames
  readonly #stated = new Map<string, number>()
  flaw: 'not_numbers' | null = null

  constructor(names: PreparedNames) {
    this.#names = names
  }

  /** Returns how many of the names are members. */
  add(usage: UnknownRecord): number {
    let known = 0
    readMembers(usage, this.#names.tokenPaths, (path, value) => {
      known += 1
      if (isCount(value)) this.#stated.set(path, value)
      else this.flaw = 'not_numbers'
    })
    return known
  }

  get input(): number | undefined {
    const { tokens, besideInput } = this.#names
    const input = this.#first(tokens.input)
    if (input === undefined || besideInput.length === 0) return input
    const sum = besideInput.reduce((all, name) => all + (this.#stated.get(name) ?? 0), input)
    if (Number.isSafeInteger(sum)) return sum
    this.flaw = 'not_numbers'
    return undefined
  }

  get output(): number | undefined {
    return this.#first(this.#names.tokens.output)
  }

  get total(): number | undefined {
    return this.#first(this.#names.tokens.total)
  }

  /** Returns the counts: the total only if it is not the sum of its parts, and so says more than they do. */
  counts(): TokenCounts {
    const { input, output, total } = this
    const counts: Partial<Record<TokenCount, number>> = {}
    if (input !== undefined) counts.input = input
    for (const { count, paths } of this.#names.parts) {
      const stated = this.#first(paths)
      if (stated !== undefined) counts[count] = stated
    }
    if (total !== undefined && total !== (input ?? 0) + (output ?? 0)) counts.total = total
    return counts
  }

  /** Returns the first of the names that was stated. */
  #first(names: readonly string[]): number | undefined {
    for (const name of names) {
      const stated = this.#stated.get(name)
      if (stated !== undefined) return stated
    }
    return undefined
  }
}
