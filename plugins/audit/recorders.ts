import type { Principal } from '../facts.ts'
import type { Arrival, Recorder } from '../plugin.ts'
import { type AuditDependencies, audit, type CallRecorder, isNoRefusal, noteSeen } from './audit.ts'
import type { PartialDecisionFacts } from './decision.ts'

export interface RouteRecorders {
  readonly calls: CallRecorder
  /** Counts callers that were refused before their principal was known. */
  readonly anonymous: Recorder<Arrival & { readonly principal?: Principal }>
  /** Records operators that were refused; their changes record what they were allowed. */
  readonly operators: Recorder<PartialDecisionFacts & { readonly principal?: Principal }>
}

export function routeRecorders(dependencies: AuditDependencies): RouteRecorders {
  const { anonymous, seen } = dependencies
  const calls = audit(dependencies)
  const allowed = ({ principal, at }: Parameters<typeof noteSeen>[1]): Promise<null> => {
    if (principal) seen.set(principal.id, { type: principal.type, at })
    return Promise.resolve(null)
  }
  return {
    calls,
    anonymous: {
      allowed,
      refused: (facts, refusal, refusedBy) => {
        noteSeen(seen, facts, refusedBy)
        if (!isNoRefusal(facts, refusal)) anonymous.count(refusal.reason)
        return Promise.resolve(null)
      },
    },
    operators: { allowed, refused: calls.refused },
  }
}
