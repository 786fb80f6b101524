import type { PrincipalType } from '../schema.ts'
import { compileGlob } from '../support/glob.ts'
import type { LimitScope } from './limit.ts'

/** The things of a principal that limits look at. */
interface ScopedPrincipal {
  readonly id: string
  readonly type: PrincipalType
  readonly capabilities: readonly string[]
}

/** The things of a call that limits look at, besides its principal. */
export interface ScopedThings {
  /** `provider/model` of each provider that may be asked; empty: it is no call of a model. */
  readonly models: readonly string[]
  /** `resource.tool`; null: it is no call of a tool. */
  readonly tool: string | null
}

/** The tests of a scope: a limit is for a call that passes both. */
export interface CompiledScope {
  readonly fitsPrincipal: (principal: ScopedPrincipal) => boolean
  readonly fitsCall: (call: ScopedThings) => boolean
}

/** Compiles the patterns of a scope. */
export function compileScope({ principals, holding, types, models, tools }: LimitScope): CompiledScope {
  const [fitsId, fitsModel, fitsTool] = [principals, models, tools].map(anyOf)
  return {
    fitsPrincipal: ({ id, type, capabilities }) =>
      (types?.includes(type) ?? true) &&
      (holding === undefined || capabilities.includes(holding)) &&
      (fitsId?.(id) ?? true),
    fitsCall: (call) =>
      (fitsModel ? call.models.some(fitsModel) : true) &&
      (fitsTool ? call.tool !== null && fitsTool(call.tool) : true),
  }
}

function anyOf(patterns: readonly string[] | undefined): ((name: string) => boolean) | null {
  if (!patterns) return null
  const tests = patterns.map(compileGlob)
  return (name) => tests.some((test) => test(name))
}
