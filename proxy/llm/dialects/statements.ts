import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { AnswerNames, OutcomeNames } from './dialect.ts'
import { MemberPicker, type PickedMembers } from './member-picker.ts'
import { type ProviderUsage, StatedUsage, type TokensUnknown } from './stated-usage.ts'

/**
 * Bytes. A longer document is neither kept nor parsed whole, which takes as long as 0.1 s
 * (docs/threats.md#a3): the members that count are picked out of it as it passes.
 */
export const PARSED_WHOLE = 65_536

export interface AnswerReading {
  readonly usage: ProviderUsage
  /** The reason why counts are missing, or may not be all; null if they are known. */
  readonly tokensUnknown: TokensUnknown | null
  readonly fault: ProviderFault | null
}

/** Reads an answer that is there whole, and short; null if it is no JSON. */
export function readDocument(
  names: AnswerNames,
  answer: Buffer,
  hear?: DocumentListener,
): AnswerReading | null {
  const root = parseOrNothing(answer.toString())
  if (root === undefined) return null
  const statements = new AnswerStatements(names, hear)
  statements.addRoot(root)
  return statements.reading(true, false)
}

/** Hears each document of an answer that is read; of a long one, the members that were picked. */
export type DocumentListener = (root: UnknownRecord) => void

/** The statements of the documents of an answer: the only one, or those of its events. */
export class AnswerStatements {
  readonly usage: StatedUsage
  readonly outcome: StatedOutcome
  readonly #names: AnswerNames
  readonly #hear: DocumentListener | undefined

  constructor(names: AnswerNames, hear?: DocumentListener) {
    this.usage = new StatedUsage(names.usage)
    this.outcome = new StatedOutcome(names.outcome)
    this.#names = names
    this.#hear = hear
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
    else if (flaw === 'too_long') tokensUnknown = flaw
    else if (!fault && this.usage.isPartial) tokensUnknown = 'partly'
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
    this.#hear?.(root)
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
    this.#hear?.(root)
  }
}

const HOLDER: PickedMembers = {
  usage: null,
  tool_usage: null,
  model: null,
  service_tier: null,
  error: null,
  status: null,
}

const ANYWHERE: PickedMembers = {
  type: null,
  object: null,
  code: null,
  success: null,
  base_resp: null,
  error_code: null,
}

function pickedOf({ usage, outcome, stated = {} }: AnswerNames): PickedMembers {
  const { list, member, picked } = usage.items
  const holder = { ...HOLDER, [list]: picked }
  const finishes = outcome.finishes.map((path) => path.split('.'))
  const inner = finishes.map(([outer = '', name = '']) => [outer, { ...holder, [name]: null }] as const)
  const holders = usage.holders.map((name) => [name, holder] as const)
  const known = { [member]: picked, ...Object.fromEntries([...holders, ...inner]), ...holder, ...ANYWHERE }
  return mergedPicks(known, stated)
}

/** Picks what either picks; a member that one of them takes whole is whole. */
function mergedPicks(one: PickedMembers, other: PickedMembers): PickedMembers {
  const merged = Object.entries(other).map(([name, members]) => {
    const known = Object.hasOwn(one, name) ? one[name] : members
    return [name, known && members ? mergedPicks(known, members) : (known ?? members)] as const
  })
  return { ...one, ...Object.fromEntries(merged) }
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
