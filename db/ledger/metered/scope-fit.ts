import type { LimitScope } from '../../limits/limit.ts'
import { type CompiledScope, compileScope } from '../../limits/scope.ts'
import type { PrincipalType } from '../../schema.ts'
import { isObject, type UnknownRecord } from '../../support/json.ts'
import type { StoredRow } from '../record/leaf.ts'

/** Tells whether a limit is for a call, as far as its row says. */
export type ScopeFit = 'yes' | 'no' | 'unknown'

/** The things of a call that limits look at. Null: its row does not say it. */
export interface RecordedThings {
  readonly id: string | null
  readonly type: PrincipalType
  readonly capabilities: readonly string[] | null
  readonly models: readonly string[] | null
  readonly tool: { readonly name: string | null } | null
}

/** A text of a row that is as long may have been cut (docs/ledger.md#leaf). */
const MAX_TEXT = 1_024

const TYPES: readonly PrincipalType[] = ['agent', 'user', 'workload', 'operator']

/** Reads the things of a call from its row. `capabilities`: of its principal then; null: they are not known. */
export function thingsIn(
  { action, principal_id: id, principal_type: type, tool }: StoredRow,
  { routed }: UnknownRecord,
  capabilities: readonly string[] | null,
): RecordedThings {
  return {
    // A user's id is not in rows, which have a pseudonym.
    id: type === 'user' ? null : (id ?? ''),
    type: TYPES.find((one) => one === type) ?? 'operator',
    capabilities,
    models: action === 'egress_llm_chat' ? modelsIn(routed) : [],
    tool: isWhole(tool ?? '') ? { name: tool } : null,
  }
}

const isWhole = (text: string): boolean => text.length < MAX_TEXT

const modelsIn = (value: unknown): readonly string[] | null =>
  Array.isArray(value) && value.every((one) => typeof one === 'string' && isWhole(one)) ? value : null

/** The scope of a limit, held against rows. */
export class ReplayedScope {
  readonly #scope: LimitScope
  /** Compiled without the members that rows did not say, by their names. */
  readonly #without = new Map<string, CompiledScope>()

  constructor(scope: LimitScope) {
    this.#scope = scope
  }

  fit({ id, type, capabilities, models, tool }: RecordedThings): ScopeFit {
    const { principals, holding, models: patterns, tools } = this.#scope
    const unknown = [
      ...(id === null && principals ? ['principals'] : []),
      ...(capabilities === null && holding !== undefined ? ['holding'] : []),
      ...(models === null && patterns ? ['models'] : []),
      ...(tool === null && tools ? ['tools'] : []),
    ]
    const { fitsPrincipal, fitsCall } = this.#compiledWithout(unknown)
    const fits =
      fitsPrincipal({ id: id ?? '', type, capabilities: capabilities ?? [] }) &&
      fitsCall({ models: models ?? [], tool: tool?.name ?? null })
    if (!fits) return 'no'
    return unknown.length === 0 ? 'yes' : 'unknown'
  }

  #compiledWithout(members: readonly string[]): CompiledScope {
    const key = members.join()
    const known = this.#without.get(key)
    if (known) return known
    const scope: unknown = Object.fromEntries(
      Object.entries(this.#scope).filter(([name]) => !members.includes(name)),
    )
    // Proven by isLimitState: it is the scope with fewer members.
    const compiled = compileScope(isObject(scope) ? (scope as LimitScope) : {})
    this.#without.set(key, compiled)
    return compiled
  }
}
