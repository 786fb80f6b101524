import { Refusal } from '../../plugins/refusal.ts'
import type { SecretTraces } from '../../plugins/secrets/traces.ts'
import { CredentialError } from './credentials/provider-keys.ts'
import { DIALECT_OF_WIRE } from './dialects/registry.ts'
import type { LlmDependencies, LlmFacts } from './llm-call.ts'
import { type AskedRequest, providerRequest } from './provider-request.ts'
import {
  attemptOf,
  failureOfAnswer,
  failureOfError,
  foreignAnswer,
  isForTheNext,
  notConfiguredFailure,
  type ProviderAttempt,
  type ProviderFailure,
  refusalOfFailure,
  unreadAnswer,
} from './refusals.ts'
import type { ProviderAnswer } from './refused-answer.ts'
import type { AskedTarget, ProviderTarget } from './routing.ts'
import { type ToldRequest, tellCall } from './translate/call.ts'
import { abandonAnswer, discardAnswer, type UpstreamAnswer } from './upstream/answer.ts'
import { hasCredentials, isApiContent, isReadableContent, withoutSecrets } from './upstream/headers.ts'
import { readProviderWords } from './upstream/words.ts'

/**
 * Asks providers in order until one answers otherwise than by a failed connection, a timeout, 402, 408, 409, 429 or 5xx.
 * Refuses with the `provider_*` reasons and `translation_lossy`. Throws the hangup's reason if the caller has hung up.
 */
export async function firstAnswer(
  targets: readonly AskedTarget[],
  facts: LlmFacts,
  means: LlmDependencies,
): Promise<ProviderAnswer> {
  const failed: ProviderAttempt[] = []
  const asked: AskedTarget[] = []
  let last: ProviderFailure | null = null
  let lossy: Refusal | null = null
  let waitedMs = 0
  const mayAsk = (target: AskedTarget) =>
    hasCredentials(target.provider, facts.headers) && asked.every((before) => mayFollow(before, target))
  for (const [index, target] of targets.entries()) {
    // A target without a key was not asked, so it does not hide the answer of another one.
    if (!hasCredentials(target.provider, facts.headers)) {
      last ??= notConfiguredFailure(target.provider)
      continue
    }
    if (!mayAsk(target)) continue
    const told = target.wire !== null ? await tellRequest(target, facts) : null
    // Nor does one that cannot be told all of the request.
    if (told instanceof Refusal) {
      lossy ??= told
      continue
    }
    const keyed = target.provider.credentials ? await withKey({ target, told }, facts, means) : target
    if ('failure' in keyed) {
      last ??= keyed.failure
      continue
    }
    asked.push(target)
    const hasNext = () => targets.slice(index + 1).some(mayAsk)
    const askedAt = performance.now()
    const outcome = await attempt({ target: keyed, told }, facts, means, hasNext).catch((error: unknown) => {
      throw facts.hangup.gone ? goneRefusal(error, target, failed) : error
    })
    const cameAt = performance.now()
    waitedMs += cameAt - askedAt
    if ('answer' in outcome) return { target: keyed, told, answer: outcome.answer, failed, waitedMs, cameAt }
    last = outcome.failure
    if (last.reason === 'provider_auth_failed') means.providerKeys.refused(target.provider)
    failed.push(attemptOf(last))
    if (!outcome.mayTryNext) break
  }
  if (!last) throw lossy ?? new Error('routing gave no target')
  const { isFree } = facts.granted.target.endpoint
  const { tokensUnknown, ...free } = last
  throw await refusalOfFailure(isFree ? free : last, failed)
}

/** Says of a call whose caller has hung up which provider may be at work on it. */
function goneRefusal(
  cause: unknown,
  { provider: { name } }: ProviderTarget,
  failed: readonly ProviderAttempt[],
): unknown {
  if (cause instanceof Refusal && cause.reason !== 'client_gone') return cause
  const attempts = [...failed, { provider: name, status: null, reason: 'client_gone' }]
  return new Refusal('client_gone', {
    detail: { provider: name },
    report: { attempts, tokens_unknown: 'no_answer' },
    cause,
  })
}

/** Gives a target the key that its source has now. */
async function withKey(
  { target, told }: AskedRequest,
  { granted }: LlmFacts,
  { providerKeys }: LlmDependencies,
): Promise<ProviderTarget | { readonly failure: ProviderFailure }> {
  try {
    const dialect = told ? DIALECT_OF_WIRE[told.to] : granted.target.dialect
    return { ...target, headers: await providerKeys.headers(target.provider, dialect) }
  } catch (error) {
    if (!(error instanceof CredentialError)) throw error
    return { failure: { ...notConfiguredFailure(target.provider), cause: error } }
  }
}

/** Tells if a call may go on to another provider: a caller's own key is meant for one origin. */
const mayFollow = (one: ProviderTarget, next: ProviderTarget): boolean =>
  !(one.headers.passthrough || next.headers.passthrough) ||
  new URL(one.provider.base_url).origin === new URL(next.provider.base_url).origin

type AttemptOutcome =
  | { readonly answer: UpstreamAnswer }
  | { readonly failure: ProviderFailure; readonly mayTryNext: boolean }

/** Translates a call for a target. Resolves with its refusal if the target cannot be told all of it. */
async function tellRequest(
  { provider, model, alias, wire }: AskedTarget,
  { granted, body, id, at, commitments, held, hangup }: LlmFacts,
): Promise<ToldRequest | Refusal> {
  const { model: named, endpoint } = granted.target
  if (model === null || named === null || endpoint.wire === undefined || wire === null)
    throw new Error('no model is told of this')
  const call = { from: endpoint.wire, body, id, at, commitments, held, model: named }
  const { principal } = granted
  try {
    return await tellCall(
      { ...call, principalId: principal.id, signal: hangup.signal },
      { provider, model, alias, wire },
    )
  } catch (error) {
    if (error instanceof Refusal && error.reason === 'translation_lossy') return error
    throw error
  }
}

function attempt(
  asked: AskedRequest,
  facts: LlmFacts,
  means: LlmDependencies,
  hasNext: () => boolean,
): Promise<AttemptOutcome> {
  const { upstream, secrets } = means
  const { target } = asked
  // The first request of that key may still be at work there: another provider would be paid for the same.
  const isWaitedFor = ({ status }: UpstreamAnswer) =>
    status === 409 && facts.headers['idempotency-key'] !== undefined
  return upstream.call(providerRequest(asked, facts, means)).then(
    (answer) => outcomeOf(answer, target, secrets, () => !isWaitedFor(answer) && hasNext()),
    // The hangup's reason is thrown on from here: nobody is left to try another provider for.
    (error: unknown) => ({ failure: failureOfError(error, target.provider), mayTryNext: true }),
  )
}

function outcomeOf(
  came: UpstreamAnswer,
  target: ProviderTarget,
  secrets: SecretTraces,
  hasNext: () => boolean,
): AttemptOutcome {
  const { status } = came
  const headers = withoutSecrets(came.headers, target.headers)
  const answer = { ...came, headers }
  const failed = { provider: target.provider, status, headers }
  if (status < 300) {
    if (isApiContent(headers)) return { answer }
    abandonAnswer(answer)
    const failure = isReadableContent(headers) ? foreignAnswer(failed) : unreadAnswer(failed)
    return { failure, mayTryNext: false }
  }
  const failure = failureOfAnswer(failed, target.headers.callerKey)
  // What is said of our key or account is not the caller's.
  if (failure && (status === 429 || status >= 500))
    return { failure: { ...failure, words: readProviderWords(answer, secrets) }, mayTryNext: true }
  if (!failure && !(isForTheNext(status) && hasNext())) return { answer }
  discardAnswer(answer)
  return {
    failure: failure ?? { ...failed, reason: 'provider_refused' },
    mayTryNext: !failure || status === 402,
  }
}
