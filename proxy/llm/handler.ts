import { sessionIdOf } from '../../plugins/audit/decision.ts'
import { Refusal } from '../../plugins/refusal.ts'
import type { Reply } from '../http/reply.ts'
import { firstAnswer } from './attempts.ts'
import { weightedOrder } from './health/weights.ts'
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
 * (docs/protocol.md#pass-through). Asks providers in the order of the file, or of their weights, until one answers
 * ({@link firstAnswer}). Refuses with the `provider_*`, `model_unknown` and
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
  const isWeighted = options.providers.some(({ weight }) => weight !== undefined)
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
    const ordered = isWeighted ? weightedOrder(targets, conversationOf(facts)) : targets
    const answered = await firstAnswer(ordered, facts, means)
    const reply = await replyOf(answered, facts, means)
    const { answerJudges: judges = [] } = services
    if (judges.length === 0) return reply
    // Loaded only where a file asks for it.
    const { judgedReply } = await import('../content/judged-reply.ts')
    const errorEvent = ({ reason: code, message }: Refusal): string =>
      endpoint.errorEvent({ type: 'api_error', code, message, param: null }, facts.id)
    return judgedReply(reply, { judges, facts, place: 'response', errorEvent })
  }
}

async function replyOf(answered: ProviderAnswer, facts: LlmFacts, means: LlmDependencies): Promise<Reply> {
  if (isTold(answered)) return tellOn(answered, facts, means)
  if (answered.answer.status < 300) return passOnAnswer(answered, facts, means)
  const refused = await passOnRefusal(answered, facts, means.secrets)
  return { ...refused, report: () => reportOf(answered, {}, facts) }
}

/** Names what stays at one provider, and so does the cache of its prompts: a session, or else the caller. */
const conversationOf = ({ headers, granted }: LlmFacts): string =>
  sessionIdOf(headers) ?? granted.principal.id

const isTold = (answered: ProviderAnswer): answered is ProviderAnswer & { told: ToldRequest } =>
  answered.told !== null
