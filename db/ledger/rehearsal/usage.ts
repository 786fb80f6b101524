import { isObject, type UnknownRecord } from '../../support/json.ts'
import { isDecisionRow, recordedDecisionOf } from '../authority/decision.ts'
import { isTexts } from '../authority/states.ts'
import type { StoredRow } from '../record/leaf.ts'
import type { DecisionWindow } from './rehearse.ts'

export interface UsedCapability {
  readonly capability: string
  /** Allowed calls that demanded it, and calls refused for lack of it. */
  readonly allowed: number
  readonly denied: number
  /** RFC 3339; null: never in the window. */
  readonly last_allowed_at: string | null
  readonly last_denied_at: string | null
  /** The tools and models of those calls, by name, at most {@link MAX_NAMES_PER_CAPABILITY} of each. */
  readonly tools: readonly string[]
  readonly models: readonly string[]
}

export interface PrincipalUsage {
  /** The last time in the window that each capability was granted, of those granted in it. RFC 3339. */
  readonly granted: ReadonlyMap<string, string>
  readonly decisions: number
  readonly capabilities: readonly UsedCapability[]
  /** Allowed calls that demanded nothing, which any set opens. */
  readonly undemanding: number
}

const MAX_NAMES_PER_CAPABILITY = 100
/** Capabilities that are told apart. A set holds 64, and refusals may name others. */
const MAX_USED_CAPABILITIES = 1_000

/** Adds up the decisions about one principal (docs/rehearsal.md#usage). Takes leaves of any rows. */
export function usageCounter(principal: string, { since, until }: DecisionWindow) {
  const capabilities = new Map<string, CapabilityTally>()
  const granted = new Map<string, string>()
  let [decisions, undemanding] = [0, 0]

  function of(capability: string): CapabilityTally {
    const known = capabilities.get(capability)
    if (known) return known
    const made = new CapabilityTally(capability)
    if (capabilities.size < MAX_USED_CAPABILITIES) capabilities.set(capability, made)
    return made
  }

  return {
    see(leaf: string): void {
      // Written by the ledger: an object, of every column but `row_hash` (docs/ledger.md#row).
      const { detail, ...columns } = JSON.parse(leaf) as UnknownRecord
      const row = columns as unknown as StoredRow
      if (row.recorded_at < since) return
      if (isObject(detail) && detail.subject === principal && row.status === 'success')
        for (const one of tokensGained(detail)) granted.set(one, row.recorded_at)
      if (row.recorded_at >= until || row.principal_id !== principal || !isDecisionRow(row)) return
      const decision = recordedDecisionOf(row, isObject(detail) ? detail : {})
      const count = decision.summarised ?? 1
      decisions += count
      const { allowed, authority, reason, requiredCapability: required } = decision
      if (allowed) for (const one of authority?.demanded ?? []) of(one).allow(row, count)
      if (allowed && authority?.demanded.length === 0) undemanding += count
      if (!allowed && reason === 'capability_missing' && typeof required === 'string')
        of(required).deny(row, count)
    },
    result: (): PrincipalUsage => ({
      granted,
      decisions,
      capabilities: [...capabilities.values()]
        .map((one) => one.shown())
        .toSorted((a, b) => b.allowed + b.denied - a.allowed - a.denied),
      undemanding,
    }),
  }
}

/** The members of a set that the one before it lacked, as the row of the change says both. */
const tokensGained = ({ capabilities, previous = [] }: UnknownRecord): readonly string[] =>
  isTexts(capabilities) && isTexts(previous) ? capabilities.filter((one) => !previous.includes(one)) : []

class CapabilityTally {
  readonly #capability: string
  readonly #tools = new Set<string>()
  readonly #models = new Set<string>()
  #allowed = 0
  #denied = 0
  #lastAllowed: string | null = null
  #lastDenied: string | null = null

  constructor(capability: string) {
    this.#capability = capability
  }

  allow(row: StoredRow, count: number): void {
    this.#allowed += count
    this.#lastAllowed = laterOf(this.#lastAllowed, row.recorded_at)
    this.#name(row)
  }

  deny(row: StoredRow, count: number): void {
    this.#denied += count
    this.#lastDenied = laterOf(this.#lastDenied, row.recorded_at)
    this.#name(row)
  }

  #name({ tool, model }: StoredRow): void {
    if (tool !== null && this.#tools.size < MAX_NAMES_PER_CAPABILITY) this.#tools.add(tool)
    if (model !== null && this.#models.size < MAX_NAMES_PER_CAPABILITY) this.#models.add(model)
  }

  shown(): UsedCapability {
    return {
      capability: this.#capability,
      allowed: this.#allowed,
      denied: this.#denied,
      last_allowed_at: this.#lastAllowed,
      last_denied_at: this.#lastDenied,
      tools: [...this.#tools].toSorted(),
      models: [...this.#models].toSorted(),
    }
  }
}

const laterOf = (one: string | null, other: string): string => (one === null || other > one ? other : one)
