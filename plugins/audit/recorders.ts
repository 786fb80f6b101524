import type { Principal } from '../facts.ts'
import type { Arrival, Recorder } from '../plugin.ts'
import { type AuditDependencies, audit, type CallRecorder } from './audit.ts'
import type { PartialDecisionFacts } from './decision.ts'

export interface RouteRecorders {
  readonly calls: CallRecorder
  /** Counts callers that were refused before their principal was known. */
  readonly anonymous: Recorder<Arrival>
  /** Records operators that were refused; their changes record what they were allowed. */
  readonly operators: Recorder<PartialDecisionFacts & { readonly principal?: Principal }>
}

export function routeRecorders(dependencies: AuditDependencies): RouteRecorders {
  const { anonymous, seen } = dependencies
  const calls = audit(dependencies)
  return {
    calls,
    anonymous: {
      allowed: () => Promise.resolve(null),
      refused: (_facts, { reason }) => {
        anonymous.count(reason)
        return Promise.resolve(null)
      },
    },
    operators: {
      allowed: ({ principal }) => {
        if (principal) seen.set(principal.id, principal)
        return Promise.resolve(null)
      },
      refused: calls.refused,
    },
  }
}
