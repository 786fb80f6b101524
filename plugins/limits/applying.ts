import { LRUCache } from 'lru-cache'
import type { CallLimit } from '../../db/limits/limit.ts'
import type { CallRules } from '../../db/limits/present-rules.ts'
import { type CompiledScope, compileScope, type ScopedThings } from '../../db/limits/scope.ts'
import type { Principal } from '../facts.ts'

/** The things of a call that limits are chosen by. */
export interface LimitedCall extends ScopedThings {
  readonly principal: Pick<Principal, 'id' | 'ref' | 'type' | 'capabilities' | 'revision'>
}

/** A limit whose patterns are compiled. */
interface CompiledLimit extends CompiledScope {
  readonly limit: CallLimit
}

const MAX_PRINCIPALS = 10_000

/** Chooses the limits that apply to calls, of one state of all rules. Keeps those of each principal. */
export class ApplyingLimits {
  readonly rules: CallRules
  /** True if one is for some models: then rows say how calls were routed. */
  readonly nameModels: boolean
  readonly #compiled: readonly CompiledLimit[]
  readonly #ofPrincipals = new LRUCache<string, readonly CompiledLimit[]>({ max: MAX_PRINCIPALS })

  constructor(rules: CallRules) {
    this.rules = rules
    this.nameModels = rules.limits.some((limit) => limit.for.models !== undefined)
    this.#compiled = rules.limits.map((limit) => ({ limit, ...compileScope(limit.for) }))
  }

  to(call: LimitedCall): readonly CallLimit[] {
    if (this.#compiled.length === 0) return []
    return this.#of(call.principal)
      .filter((one) => one.fitsCall(call))
      .map(({ limit }) => limit)
  }

  /** Returns those that apply to some calls of a principal. */
  ofPrincipal(principal: LimitedCall['principal']): readonly CallLimit[] {
    return this.#of(principal).map(({ limit }) => limit)
  }

  #of(principal: LimitedCall['principal']): readonly CompiledLimit[] {
    const key = `${principal.revision} ${principal.ref}`
    const own = this.#ofPrincipals.get(key) ?? this.#compiled.filter((one) => one.fitsPrincipal(principal))
    this.#ofPrincipals.set(key, own)
    return own
  }
}
