import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { Dialect, OutcomeNames, TokenCount, UsageNames } from './dialect.ts'
import { MemberPicker, type PickedMembers, TOO_LONG } from './member-picker.ts'

/**
 * Bytes. A longer document is neither kept nor parsed whole, which takes as long as 0.1 s
 * (docs/threats.md#a3): the members that count are picked out of it as it passes.
 */
export const PARSED_WHOLE = 65_536

export type AnswerNames = Pick<Dialect, 'usage' | 'outcome'>

export interface AnswerReading {
  readonly usage: ProviderUsage
  /** The reason why counts are missing, or may not be all; null if they are known. */
  readonly tokensUnknown: TokensUnknown | null
  readonly fault: ProviderFault | null
}

/** Reads an answer that is there whole, and short; null if it is no JSON. */
export function readDocument(names: AnswerNames, answer: Buffer): AnswerReading | null {
  const root = parseOrNothing(answer.toString())
  if (root === undefined) return null
  const statements = new AnswerStatements(names)
  statements.addRoot(root)
  return statements.reading(true, false)
}

/** The statements of the documents of an answer: the only one, or those of its events. */
export class AnswerStatements {
  readonly usage: StatedUsage
  readonly outcome: StatedOutcome
  readonly #names: AnswerNames

  constructor(names: AnswerNames) {
    this.usage = new StatedUsage(names.usage)
    this.outcome = new StatedOutcome(names.outcome)
    this.#names = names
  }

  addEvent(name: string, data: string): void {
    const isEnd = data.startsWith('[DONE]')
    const root = isEnd ? undefined : parseOrNothing(data)
    if (isEnd) this.outcome.end()
    else if (isObject(root)) this.addDocument(root, name)
    // In whichever words.
    else if (name === 'error') this.addDocument({}, name)
  }

  reading(isWhole: boolean, isUnreadable: boolean): AnswerReading {
    const usage = this.usage.usage()
    const { fault } = this.outcome
    const { flaw } = this.usage
    let tokensUnknown: TokensUnknown | null = null
    if (flaw === 'not_numbers') tokensUnknown = flaw
    else if (!isWhole) tokensUnknown = 'cut_off'
    else if (!usage.tokens)
      tokensUnknown = flaw ?? (isUnreadable ? 'unreadable' : fault ? 'failed' : 'not_stated')
    return { usage, tokensUnknown, fault: fault ?? (isUnreadable ? { code: null } : null) }
  }

  /** Takes a document; of a list, as some state a failure, the first one. */
  addRoot(root: unknown): void {
    const first: unknown = Array.isArray(root) ? root[0] : root
    if (isObject(first)) this.addDocument(first)
  }

  addDocument(root: UnknownRecord, name = ''): void {
    this.usage.add(root)
    this.outcome.add(root, name)
  }

  picker(): MemberPicker {
    return new MemberPicker(pickedOf(this.#names))
  }

  /** Takes what was picked from a document. One that was cut off has not said how the work went. */
  addPicked(picker: MemberPicker): void {
    const root = picker.object()
    if (!isObject(root)) return
    this.usage.add(root)
    if (picker.isWhole) this.outcome.add(root, '')
  }
}

const HOLDER: PickedMembers = { usage: null, model: null, service_tier: null, error: null, status: null }

const ANYWHERE: PickedMembers = {
  ...HOLDER,
  type: null,
  object: null,
  code: null,
  success: null,
  base_resp: null,
  error_code: null,
}

function pickedOf({ usage, outcome }: AnswerNames): PickedMembers {
  const finishes = outcome.finishes.map((path) => path.split('.'))
  const inner = finishes.map(([outer = '', name = '']) => [outer, { ...HOLDER, [name]: null }] as const)
  const holders = usage.holders.map((name) => [name, HOLDER] as const)
  return { ...Object.fromEntries([...holders, ...inner]), ...ANYWHERE }
}

export interface ProviderUsage {
  /** Whole numbers. `input` is everything that the model read, cached parts included. */
  readonly tokens?: Readonly<Partial<Record<TokenCount, number>>>
  readonly service_tier?: string
  /** The model that answered, as the provider names it. */
  readonly upstream_model?: string
}

/** The reasons why counts are missing, or may not be all (docs/ledger.md#tokens-unknown). A closed list. */
export type TokensUnknown =
  | 'not_stated'
  | 'failed'
  | 'cut_off'
  | 'not_numbers'
  | 'other_names'
  | 'too_long'
  | 'encoded'
  | 'unreadable'

const MAX_NAME = 256

/** The statements of an answer's events so far; a later one replaces an earlier one of the same name. */
export class StatedUsage {
  readonly #names: UsageNames
  readonly #stated = new Map<string, number>()
  #model: string | undefined
  #tier: string | undefined
  #flaw: 'not_numbers' | 'other_names' | 'too_long' | null = null

  constructor(names: UsageNames) {
    this.#names = names
  }

  get isNamed(): boolean {
    return this.#model !== undefined
  }

  /** The reason why a count that was stated is not known. */
  get flaw(): TokensUnknown | null {
    return this.#flaw
  }

  /** Takes a document, or the members picked from one. */
  add(root: UnknownRecord): void {
    for (const name of this.#names.holders) {
      const holder = root[name]
      for (const one of Array.isArray(holder) ? holder : [holder]) this.#readHolder(one)
    }
    this.#readHolder(root)
  }

  #readHolder(holder: unknown): void {
    if (!isObject(holder)) return
    const { usage, model, service_tier: tier } = holder
    if (isObject(usage)) {
      this.#collect(usage)
      this.#model = nameOf(model) ?? this.#model
      this.#tier = nameOf(usage.service_tier) ?? nameOf(tier) ?? this.#tier
      return
    }
    this.#model ??= nameOf(model)
    if (usage === TOO_LONG) this.#flaw = 'too_long'
    else if ((usage ?? null) !== null) this.#flaw = 'not_numbers'
  }

  usage(): ProviderUsage {
    const { tokens } = this.#names
    const counts: Partial<Record<TokenCount, number>> = {}
    // Its keys are these counts.
    for (const count of Object.keys(tokens) as TokenCount[]) {
      const stated = count === 'input' ? this.#input(tokens.input) : this.#first(tokens[count])
      if (stated !== undefined) counts[count] = stated
    }
    return {
      ...(Object.keys(counts).length > 0 && { tokens: counts }),
      ...(this.#tier !== undefined && { service_tier: this.#tier }),
      ...(this.#model !== undefined && { upstream_model: this.#model }),
    }
  }

  #collect(usage: UnknownRecord): void {
    let known = 0
    for (const names of Object.values(this.#names.tokens)) known += this.#keep(usage, names)
    this.#keep(usage, this.#names.besideInput)
    if (known === 0 && Object.keys(usage).length > 0) this.#flaw ??= 'other_names'
  }

  /** Returns how many of the names are members. */
  #keep(usage: UnknownRecord, names: readonly string[]): number {
    let known = 0
    for (const name of names) {
      const value = valueAt(usage, name) ?? null
      if (value === null) continue
      known += 1
      if (Number.isSafeInteger(value) && Number(value) >= 0) this.#stated.set(name, Number(value))
      else this.#flaw = 'not_numbers'
    }
    return known
  }

  #input(names: readonly string[]): number | undefined {
    const input = this.#first(names)
    if (input === undefined) return undefined
    const beside = this.#names.besideInput.map((name) => this.#stated.get(name) ?? 0)
    const sum = beside.reduce((all, one) => all + one, input)
    if (Number.isSafeInteger(sum)) return sum
    this.#flaw = 'not_numbers'
    return undefined
  }

  #first(names: readonly string[]): number | undefined {
    for (const name of names) {
      const stated = this.#stated.get(name)
      if (stated !== undefined) return stated
    }
    return undefined
  }
}

function nameOf(value: unknown): string | undefined {
  if (typeof value !== 'string' || value === '' || value.length > MAX_NAME) return undefined
  return value.toWellFormed()
}

/** `name`: a member, or with a dot a member of a member. */
function valueAt(usage: UnknownRecord, name: string): unknown {
  const dot = name.indexOf('.')
  if (dot < 0) return usage[name]
  const inner = usage[name.slice(0, dot)]
  return isObject(inner) ? inner[name.slice(dot + 1)] : undefined
}

/** A failure that a provider reports in an answer of status 2xx. */
export interface ProviderFault {
  /** The provider's own code; null if it names none that is sane. */
  readonly code: string | null
}

/** The statements of an answer, or of the events of a stream so far, about the work. */
export class StatedOutcome {
  readonly #names: OutcomeNames
  fault: ProviderFault | null = null
  /** True once its last event has come: nothing after it counts. */
  isLast = false
  /** True once it has said why its text ended. */
  isFinished = false

  constructor(names: OutcomeNames) {
    this.#names = names
  }

  add(root: UnknownRecord, event: string): void {
    if (this.isLast) return
    this.fault = faultIn(root, event, this.#names.content)
    this.isLast = this.fault !== null || this.#names.lastEvents.includes(String(root.type))
    this.isFinished ||= this.#names.finishes.some((path) => isStated(valueIn(root, path)))
  }

  /** Takes the word that ends a stream of whichever API. */
  end(): void {
    this.isLast = true
  }
}

/**
 * Finds the failure that a document reports (docs/protocol.md#reported-failures); null if it reports none.
 */
function faultIn(root: UnknownRecord, event: string, content: readonly string[]): ProviderFault | null {
  const { error, type, object, response } = root
  if (isStated(error)) return { code: codeOf(error) ?? codeOf(root) }
  if (type === 'error' || object === 'error' || event === 'error') return { code: codeOf(root) }
  const result = isObject(response) ? response : root
  if (isStated(result.error)) return { code: codeOf(result.error) }
  if (typeof result.status === 'string' && FAILED.has(result.status)) return { code: result.status }
  return faultOfChoices(root.choices) ?? faultOfImitator(root, content)
}

/** The statuses of a response that came to nothing. One that is `incomplete` reached a limit of its request. */
const FAILED = new Set(['failed', 'cancelled'])

/** A text that a provider gave up: OpenRouter says so of the choice alone. */
function faultOfChoices(choices: unknown): ProviderFault | null {
  for (const choice of Array.isArray(choices) ? choices : [choices]) {
    if (!isObject(choice)) continue
    if (isStated(choice.error)) return { code: codeOf(choice.error) }
    if (choice.finish_reason === 'error') return { code: null }
  }
  return null
}

/** The forms of those who answer 200 whatever happens: MiniMax, Baidu, Zhipu, and gateways in between. */
function faultOfImitator(root: UnknownRecord, content: readonly string[]): ProviderFault | null {
  const { base_resp: base, error_code: number, success, code } = root
  if (isObject(base) && (base.status_code ?? 0) !== 0) return { code: named(base.status_code) }
  if (isStated(number) && number !== 0) return { code: named(number) }
  if (success === false) return { code: named(code) }
  const hasContent = content.some((name) => (root[name] ?? null) !== null)
  const said = [root.message, root.msg, root.detail, root.errors].some(isSentence)
  return said && !hasContent ? { code: codeOf(root) } : null
}

const isSentence = (value: unknown): boolean =>
  (typeof value === 'string' && value !== '') || (Array.isArray(value) && value.length > 0)

/** Tells a value from those by which APIs say that there is none: null, false, 0, an empty text or object. */
const isStated = (value: unknown): boolean =>
  Boolean(value) && (typeof value !== 'object' || Object.keys(value ?? {}).length > 0)

function codeOf(error: unknown): string | null {
  if (!isObject(error)) return named(error)
  const { code, type, status } = error
  return named(code) ?? (type === 'error' ? null : named(type)) ?? named(status)
}

/** A word or number, and no text of anybody's: rows hold it. */
const CODE = /^[\w.:/-]{1,64}$/

const named = (value: unknown): string | null =>
  (typeof value === 'string' || typeof value === 'number') && CODE.test(String(value)) ? String(value) : null

/** `path`: of a member of an object, or of the objects of an array. Returns the first that is stated. */
function valueIn(root: UnknownRecord, path: string): unknown {
  const [outer = '', inner = ''] = path.split('.')
  const holder = root[outer]
  const holders: readonly unknown[] = Array.isArray(holder) ? holder : [holder]
  return holders.map((one) => (isObject(one) ? one[inner] : null)).find(isStated)
}

/** Returns undefined for a text that is no JSON. */
export function parseOrNothing(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    // Not our document to judge: the caller gets it as it is, and its usage stays unknown.
    return undefined
  }
}
