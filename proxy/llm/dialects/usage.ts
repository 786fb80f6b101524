import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import type { TokenCount, UsageNames } from './dialect.ts'
import { TOO_LONG } from './member-picker.ts'

/** The cost of an answer, as its provider stated it. A member is absent if nothing was stated. */
export interface ProviderUsage {
  /**
   * Whole numbers. `input` is everything that the model read, cached parts included, however the vendor
   * counts.
   */
  readonly tokens?: Readonly<Partial<Record<TokenCount, number>>>
  /** The class of service that the call got. */
  readonly service_tier?: string
  /** The model that answered, as the provider names it. */
  readonly upstream_model?: string
}

/**
 * The reasons why an answer's counts are missing, or may not be all (docs/ledger.md#tokens-unknown). A closed
 * list.
 */
export type TokensUnknown =
  | 'not_stated'
  | 'failed'
  | 'cut_off'
  | 'not_numbers'
  | 'other_names'
  | 'too_long'
  | 'encoded'
  | 'unreadable'

/** Characters of the name of a model or of a service tier. */
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

  /** True once an answer has said which model gives it. */
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
