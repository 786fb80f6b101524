import type { CallGrant, CallSummary } from '../../plugins/facts.ts'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import type { CallLimits } from '../../plugins/limits/limits.ts'
import type { CallPermit } from '../../plugins/permit.ts'
import type { PinnedCaller } from '../../plugins/pin/pin.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import type { SecretTraces } from '../../plugins/secrets/traces.ts'
import type { AnswerJudge } from '../content/judged-reply.ts'
import type { ModelMismatches } from './answered-models.ts'
import type { ProviderKeys } from './credentials/provider-keys.ts'
import type { ProviderBreakers } from './health/breaker.ts'
import type { LlmTarget } from './routing.ts'
import type { StateMemory } from './state/memory.ts'
import type { StateFacts } from './state/provider-state.ts'
import type { LlmUpstream } from './upstream/answer.ts'
import type { IdempotencyKeys } from './upstream/idempotency-keys.ts'

/** A granted call with its body. */
export type LlmFacts = Arrival &
  Pick<JsonBody, 'body' | 'scan'> &
  Pick<PinnedCaller, 'commitments'> &
  StateFacts & {
    granted: CallPermit<LlmTarget>
    /** The limits that apply to it. */
    limits?: Pick<CallLimits, 'claims'>
    readonly call?: CallSummary
    readonly grant?: CallGrant
  }

export interface LlmServices {
  readonly upstream: LlmUpstream
  readonly providerKeys: Pick<ProviderKeys, 'headers' | 'refused' | 'traces'>
  readonly breakers: ProviderBreakers
  readonly idempotencyKeys: IdempotencyKeys
  /** The name of the gateways on this database in `CDN-Loop` (RFC 8586): a token that nobody can guess. */
  readonly loopToken: string
  readonly states: Pick<StateMemory, 'note'>
  readonly modelMismatches: Pick<ModelMismatches, 'note' | 'noteUnserved'>
  /** The judges of answers. Absent, or none: nobody judges them. */
  readonly answerJudges?: readonly AnswerJudge[]
}

export interface LlmDependencies extends LlmServices {
  readonly secrets: SecretTraces
}
