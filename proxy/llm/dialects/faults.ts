import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { OutcomeNames } from './dialect.ts'

/** A failure that a provider reports in an answer of status 2xx. */
export interface ProviderFault {
  /** The provider's own code; null if it names none that is sane. */
  readonly code: string | null
}

/** The statements of an answer, or of the events of a stream so far, about the work. */
export class StatedOutcome {
  readonly #names: OutcomeNames
  /** The failure that was reported first. */
  fault: ProviderFault | null = null
  /** True once its last event has come: nothing after it counts. */
  isLast = false
  /** True once it has said why its text ended. */
  isFinished = false

  constructor(names: OutcomeNames) {
    this.#names = names
  }

  /** `event`: the name of the event that it is the data of. */
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
 * Finds the failure that a document reports, in the forms of either vendor's API and of its imitators
 * (docs/protocol.md#reported-failures); null if it reports none.
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
