import { LRUCache } from 'lru-cache'
import type { CallLimit } from '../../db/limits/limit.ts'
import type { LimitSet } from '../../db/limits/present-limits.ts'
import type { Principal } from '../facts.ts'

/** The things of a call that limits are chosen by. */
export interface LimitedCall {
  readonly principal: Pick<Principal, 'id' | 'ref' | 'type' | 'capabilities' | 'revision'>
  /** `provider/model` of each provider that may be asked; empty: it is no call of a model. */
  readonly models: readonly string[]
  /** `resource.tool`; null: it is no call of a tool. */
  readonly tool: string | null
}

/** A limit whose patterns are compiled. */
interface CompiledLimit {
  readonly limit: CallLimit
  readonly fitsPrincipal: (principal: LimitedCall['principal']) => boolean
  readonly fitsCall: (call: LimitedCall) => boolean
}

type Glob = (pattern: string) => (name: string) => boolean

const MAX_PRINCIPALS = 10_000

/** Chooses the limits that apply to calls, of one state of all limits. Keeps those of each principal. */
export class ApplyingLimits {
  readonly set: LimitSet
  readonly #compiled: readonly CompiledLimit[]
  readonly #ofPrincipals = new LRUCache<string, readonly CompiledLimit[]>({ max: MAX_PRINCIPALS })

  constructor(set: LimitSet, glob: Glob) {
    this.set = set
    this.#compiled = set.limits.map((limit) => compiled(limit, glob))
  }

  to(call: LimitedCall): readonly CallLimit[] {
    if (this.#compiled.length === 0) return []
    const { ref, revision } = call.principal
    const key = `${revision} ${ref}`
    const own =
      this.#ofPrincipals.get(key) ?? this.#compiled.filter((one) => one.fitsPrincipal(call.principal))
    this.#ofPrincipals.set(key, own)
    return own.filter((one) => one.fitsCall(call)).map(({ limit }) => limit)
  }
}

function compiled(limit: CallLimit, glob: Glob): CompiledLimit {
  const { principals, holding, types, models, tools } = limit.for
  const [fitsId, fitsModel, fitsTool] = [principals, models, tools].map((patterns) => anyOf(patterns, glob))
  return {
    limit,
    fitsPrincipal: ({ id, type, capabilities }) =>
      (types?.includes(type) ?? true) &&
      (holding === undefined || capabilities.includes(holding)) &&
      (fitsId?.(id) ?? true),
    fitsCall: (call) =>
      (fitsModel ? call.models.some(fitsModel) : true) &&
      (fitsTool ? call.tool !== null && fitsTool(call.tool) : true),
  }
}

function anyOf(patterns: readonly string[] | undefined, glob: Glob): ((name: string) => boolean) | null {
  if (!patterns) return null
  const tests = patterns.map(glob)
  return (name) => tests.some((test) => test(name))
}
