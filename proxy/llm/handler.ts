import { Refusal } from '../../plugins/refusal.ts'
import type { Reply } from '../http/reply.ts'
import { firstAnswer } from './attempts.ts'
import type { LlmDependencies, LlmFacts, LlmServices } from './llm-call.ts'
import type { LlmOptions } from './options.ts'
import { passOnAnswer, reportOf } from './passed-answer.ts'
import { LOOP } from './provider-request.ts'
import { type ProviderAnswer, passOnRefusal } from './refused-answer.ts'
import { type AskedTarget, providerRouting } from './routing.ts'
import type { ToldRequest } from './translate/call.ts'
import { tellOn } from './translated-answer.ts'
import { providerSecretTraces } from './upstream/words.ts'

/**
 * Sends a granted call to the provider of its model and passes the answer on as it comes
 * (docs/protocol.md#pass-through). Tries providers in order until one answers otherwise than by a failed
 * connection, a timeout, 402, 408, 409, 429 or 5xx. Refuses with the `provider_*`, `model_unknown` and
 * `dialect_translation_unavailable` reasons. Throws the hangup's reason when the caller has hung up.
 */
export function llmHandler(options: LlmOptions, services: LlmServices): (facts: LlmFacts) => Promise<Reply> {
  const targetsOf = providerRouting(options)
  const fixed = providerSecretTraces(options)
  const fetching = options.providers.filter(({ credentials }) => credentials !== undefined)
  const means: LlmDependencies = {
    ...services,
    // Those that are fetched change.
    get secrets() {
      return fetching.length === 0 ? fixed : [...fixed, ...services.providerKeys.traces(fetching)]
    },
  }
  return async (facts) => {
    const { model, endpoint } = facts.granted.target
    if (facts.headers[LOOP]?.includes(services.loopToken)) throw new Refusal('loop_detected')
    const targets = ((): readonly AskedTarget[] => {
      try {
        const found = targetsOf(model, endpoint)
        // What one provider keeps another one does not know.
        return facts.stateAt === null
          ? found
          : found.filter(({ provider }) => facts.stateAt?.has(provider.name))
      } catch (error) {
        if (model !== null && error instanceof Refusal && error.reason === 'model_unknown')
          services.modelMismatches.noteUnserved({ asked: model, at: facts.at, requestId: facts.id })
        throw error
      }
    })()
    const answered = await firstAnswer(targets, facts, means)
    if (isTold(answered)) return tellOn(answered, facts, means)
    return answered.answer.status < 300
      ? passOnAnswer(answered, facts, means)
      : {
          ...(await passOnRefusal(answered, facts, means.secrets)),
          report: () => reportOf(answered, {}, facts),
        }
  }
}

const isTold = (answered: ProviderAnswer): answered is ProviderAnswer & { told: ToldRequest } =>
  answered.told !== null
