import { compileGlob } from '../../db/support/glob.ts'
import type { LlmProvider } from './options.ts'

/** The most pairs of models remembered: those seen last. */
const MAX_MISMATCHES = 100

/** A model that a provider said it ran in place of the one that it was asked for. */
export interface ModelMismatch {
  readonly provider: string
  readonly asked: string
  readonly answered: string
  readonly calls: number
  /** The time of the last of these calls. ms since the epoch. */
  readonly at: number
  readonly requestId: string
}

/** A model that was asked for and no provider serves. */
export interface UnservedModel extends Pick<ModelMismatch, 'asked' | 'calls' | 'at' | 'requestId'> {
  /** The time of the first of these calls. ms since the epoch. */
  readonly first: number
}

/** Remembers, in memory, which providers ran another model than they were asked for. */
export class ModelMismatches {
  readonly #onMismatch: (provider: string) => void
  readonly #seen = new Map<string, ModelMismatch>()
  readonly #unserved = new Map<string, UnservedModel>()

  constructor(onMismatch: (provider: string) => void) {
    this.#onMismatch = onMismatch
  }

  note(mismatch: Omit<ModelMismatch, 'calls'>): void {
    const key = JSON.stringify([mismatch.provider, mismatch.asked, mismatch.answered])
    const calls = (this.#seen.get(key)?.calls ?? 0) + 1
    keepNewest(this.#seen, key, { ...mismatch, calls })
    this.#onMismatch(mismatch.provider)
  }

  noteUnserved(call: Pick<UnservedModel, 'asked' | 'at' | 'requestId'>): void {
    const { first = call.at, calls = 0 } = this.#unserved.get(call.asked) ?? {}
    keepNewest(this.#unserved, call.asked, { ...call, first, calls: calls + 1 })
  }

  list(): readonly ModelMismatch[] {
    return [...this.#seen.values()].reverse()
  }

  unserved(): readonly UnservedModel[] {
    return [...this.#unserved.values()].reverse()
  }
}

function keepNewest<Value>(kept: Map<string, Value>, key: string, value: Value): void {
  kept.delete(key)
  kept.set(key, value)
  const [oldest] = kept.keys()
  if (kept.size > MAX_MISMATCHES && oldest !== undefined) kept.delete(oldest)
}

/**
 * Tells whether the model that a provider names in its answer is the one that it was asked for, in the
 * spellings that honest providers use, or under a name that the operator's file gives it.
 */
export function isRequestedModel(
  provider: Pick<LlmProvider, 'answered_by'>,
  asked: string,
  answered: string,
): boolean {
  if (isSameModel(asked, answered)) return true
  const names = Object.hasOwn(provider.answered_by, asked) ? (provider.answered_by[asked] ?? []) : []
  return names.some((name) => isSameModel(name, answered) || compileGlob(name)(answered))
}

function isSameModel(asked: string, answered: string): boolean {
  const [wanted, given] = [plainName(asked), plainName(answered)]
  if (wanted === given) return true
  const undated = wanted.replace(ROLLING, '')
  // A caller who asks for one snapshot gets no other.
  return undated === given || (!SNAPSHOT.test(wanted) && undated === given.replace(SNAPSHOT, ''))
}

/**
 * A name without the vendor's prefix (`openai/`, `us.anthropic.`) and marks of places and versions of an API.
 */
const plainName = (name: string): string =>
  name
    .toLowerCase()
    .replace('@', '-')
    .replace(/^.*\//, '')
    .replace(/^(?:[a-z]{2,6}\.)?(?:ai21|amazon|anthropic|cohere|deepseek|meta|mistral|openai|qwen)\./, '')
    .replace(/(?:-v\d+)?:(?:\d+|free|nitro|floor|latest)$/, '')

/** The end of a name that stands for its newest snapshot: `-latest`, and `-0` of Anthropic. */
const ROLLING = /-(?:latest|0)$/
/** The end of the name of a snapshot: `-2026-01-01`, `-20260101`, `-0613`, `-002`, `-05-20`. */
const SNAPSHOT = /-(?:\d{4}-\d{2}-\d{2}|\d{2}-\d{2,4}|\d{8}|\d{6}|\d{3,4})(?:-v\d+)?$/
