import type { IncomingHttpHeaders } from 'node:http'
import { sessionIdOf } from '../../plugins/audit/decision.ts'
import type { TracedAttempt } from '../../plugins/call-trace.ts'
import { type JsonSpan, scanJson } from '../../plugins/json-body/scan.ts'
import { Refusal } from '../../plugins/refusal.ts'
import { quotesSecret } from '../../plugins/secrets/traces.ts'
import { parseErrorWords } from '../egress/error-words.ts'
import { COUNT_PATH, DIALECT_BY_NAME, PATH_OF_WIRE } from './dialects/registry.ts'
import type { BreakerPass } from './health/breaker.ts'
import { peekFirstEvent, type StreamedFailure } from './health/first-event.ts'
import { type RetryCause, retryDelay } from './health/retry.ts'
import type { LlmDependencies, LlmFacts } from './llm-call.ts'
import {
  failureOfAnswer,
  failureOfError,
  failureOfFirstEvent,
  foreignAnswer,
  isForTheNext,
  type ProviderFailure,
  unreadAnswer,
} from './refusals.ts'
import type { ProviderAnswer } from './refused-answer.ts'
import type { AskedTarget, ProviderTarget } from './routing.ts'
import { type ToldRequest, tellCall } from './translate/call.ts'
import {
  abandonAnswer,
  discardAnswer,
  type UpstreamAnswer,
  UpstreamError,
  type UpstreamHeaders,
  type UpstreamRequest,
} from './upstream/answer.ts'
import {
  isApiContent,
  isEventStream,
  isReadableContent,
  providerRequestHeaders,
  withoutSecrets,
} from './upstream/headers.ts'
import { withQuery } from './upstream/provider.ts'
import { vertexRequest } from './upstream/vertex.ts'
import { readProviderWords } from './upstream/words.ts'

export type AskedRequest = Pick<ProviderAnswer, 'target' | 'told'>

/** A request that was let through to a provider. */
interface SentRequest extends AskedRequest {
  readonly pass: BreakerPass
  /** The requests to this provider for this call, this one included. */
  readonly asked: number
  /** Tells whether another provider could be asked now. */
  readonly hasNext: () => boolean
  /** The instant until which this provider may be asked again. ms of the monotonic clock. */
  readonly retryUntil: number
  readonly trace: TracedAttempt | null
}

type AttemptOutcome =
  | { readonly answer: UpstreamAnswer }
  | {
      readonly failure: ProviderFailure
      readonly mayTryNext: boolean
      /** The time until the same provider is asked again. ms. Null: it is not. */
      readonly retryMs: number | null
    }

/**
 * Sends a request to a provider, and tells its breaker what came of it. Resolves with a failure if another request may
 * be answered otherwise, or nothing of the answer may go to the caller. Rejects with the hangup's reason.
 */
export async function sendRequest(
  sent: SentRequest,
  facts: LlmFacts,
  means: LlmDependencies,
): Promise<AttemptOutcome> {
  const { provider, headers: fixed } = sent.target
  const note = (cause: RetryCause, headers: UpstreamHeaders): void =>
    means.breakers.noteCame(provider, sent.pass, { cause, headers, isCallerKey: fixed.callerKey })
  try {
    const came = await means.upstream.call(providerRequest(sent, facts, means))
    const answer = { ...came, headers: withoutSecrets(came.headers, fixed) }
    const peeked = mayBeLeft(answer, sent) ? await peekFirstEvent(answer.body, facts.hangup) : null
    note(peeked?.failure?.status ?? answer.status, answer.headers)
    if (!peeked?.failure) return watched(outcomeOf({ ...answer, ...peeked }, sent, facts, means), sent, means)
    return outcomeOfFirstEvent({ ...answer, ...peeked }, peeked.failure, sent, means)
  } catch (error) {
    // The hangup's reason is thrown on from here: nobody is left to try another provider for.
    const failure = failureOfError(error, provider)
    const kind = error instanceof UpstreamError && !facts.hangup.gone ? error.kind : null
    if (kind !== null) note(kind, {})
    return { failure, mayTryNext: true, retryMs: kind && retryMsOf(kind, {}, sent, means) }
  }
}

/** Recognises a stream whose first event may be a failure that makes room for another answer. */
const mayBeLeft = (
  answer: UpstreamAnswer,
  { target, asked, hasNext }: SentRequest,
): answer is UpstreamAnswer & { body: Exclude<UpstreamAnswer['body'], Buffer> } =>
  answer.status < 300 &&
  !Buffer.isBuffer(answer.body) &&
  isEventStream(answer.headers) &&
  isReadableContent(answer.headers) &&
  (asked < (target.provider.retry?.attempts ?? 1) || hasNext())

/** Judges a stream that began with a failure: it is passed on if nobody else can be asked. */
function outcomeOfFirstEvent(
  answer: UpstreamAnswer,
  { status, event }: StreamedFailure,
  sent: SentRequest,
  means: LlmDependencies,
): AttemptOutcome {
  const { headers } = answer
  const retryMs = retryMsOf(status, headers, sent, means)
  if (retryMs === null && !sent.hasNext()) return { answer }
  abandonAnswer(answer)
  const words = quotesSecret(means.secrets, event.bytes) ? null : parseErrorWords(event.document)
  const failure = failureOfFirstEvent({ provider: sent.target.provider, status, headers }, answer.status)
  return { failure: { ...failure, words: Promise.resolve(words) }, mayTryNext: true, retryMs }
}

function outcomeOf(
  answer: UpstreamAnswer,
  sent: SentRequest,
  facts: LlmFacts,
  means: LlmDependencies,
): AttemptOutcome {
  const { target, hasNext } = sent
  const { status, headers } = answer
  const failed = { provider: target.provider, status, headers }
  if (status < 300) {
    if (isApiContent(headers)) return { answer }
    abandonAnswer(answer)
    const failure = isReadableContent(headers) ? foreignAnswer(failed) : unreadAnswer(failed)
    return { failure, mayTryNext: false, retryMs: null }
  }
  const retryMs = retryMsOf(status, headers, sent, means)
  const failure = failureOfAnswer(failed, target.headers.callerKey)
  // What is said of our key or account is not the caller's.
  if (failure && (status === 429 || status >= 500)) {
    const words = readProviderWords(answer, means.secrets)
    return { failure: { ...failure, words }, mayTryNext: true, retryMs }
  }
  // The first request of that key may still be at work there: another provider would be paid for the same.
  const isWaitedFor = status === 409 && facts.headers['idempotency-key'] !== undefined
  const isLeft = isForTheNext(status) && (retryMs !== null || (!isWaitedFor && hasNext()))
  if (!failure && !isLeft) return { answer }
  discardAnswer(answer)
  return {
    failure: failure ?? { ...failed, reason: 'provider_refused' },
    mayTryNext: failure ? status === 402 : !isWaitedFor,
    retryMs,
  }
}

/** Returns the time until the same provider is asked again, null if it is not. Never beyond `retryUntil`. */
function retryMsOf(
  cause: RetryCause,
  headers: UpstreamHeaders,
  { target, asked, retryUntil }: SentRequest,
  { breakers }: LlmDependencies,
): number | null {
  const { retry } = target.provider
  if (!retry) return null
  const ms = retryDelay(retry, { cause, headers, asked }, { now: breakers.clock, random: Math.random })
  return ms !== null && performance.now() + ms < retryUntil ? ms : null
}

/** Tells the breaker if an answer that has begun breaks off. */
function watched(
  outcome: AttemptOutcome,
  { target, pass }: SentRequest,
  { breakers }: LlmDependencies,
): AttemptOutcome {
  if (!('answer' in outcome) || outcome.answer.status >= 300 || Buffer.isBuffer(outcome.answer.body))
    return outcome
  outcome.answer.body.on('error', (error) => {
    if (error instanceof UpstreamError) breakers.note(target.provider, pass, 'broken_off')
  })
  return outcome
}

/** Translates a call for a target. Resolves with its refusal if the target cannot be told all of it. */
export async function tellRequest(
  { provider, model, alias, wire }: AskedTarget,
  { granted, body, headers, id, at, commitments, held, hangup }: LlmFacts,
): Promise<ToldRequest | Refusal> {
  const { model: named, endpoint } = granted.target
  const from = endpoint.wire ?? endpoint.counts
  if (model === null || named === null || from === undefined || wire === null)
    throw new Error('no model is told of this')
  const session = sessionIdOf(headers)
  const isCount = endpoint.counts !== undefined
  const call = { from, isCount, body, id, at, commitments, held, model: named, session }
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

/** Makes the request to a provider of a granted call: its path, headers and body, translated or as they came. */
function providerRequest(
  { target, told, trace }: SentRequest,
  { granted, body, scan: { spans }, headers: caller, query: stated, hangup }: LlmFacts,
  { idempotencyKeys, loopToken }: LlmDependencies,
): UpstreamRequest {
  const given = trace ? { ...caller, ...trace.context } : caller
  const key = given['idempotency-key']
  const ownKey = typeof key === 'string' ? idempotencyKeys(granted.principal, key) : null
  const requested = granted.target
  const { model } = target
  // What a vendor's own headers and parameters choose is of that vendor's API.
  const headers = told
    ? withoutNames(given, DIALECT_BY_NAME[requested.endpoint.dialect].headers.request)
    : given
  const query = told ? '' : stated
  const path = told ? (told.isCount ? COUNT_PATH : PATH_OF_WIRE[told.to]) : requested.endpoint.upstreamPath
  const call = told
    ? { body: told.body, spans: scanJson(told.body, 1).spans, headers }
    : { body, spans, headers }
  const isAsItCame = told !== null || model === null || model === requested.model
  const { url, body: parts } =
    target.provider.api === 'vertex' && model !== null
      ? vertexRequest({ base: target.provider.base_url, path, model, call })
      : {
          url: urlOf(target, path),
          body: isAsItCame ? [call.body] : withModel(body, spans.get('model'), model),
        }
  const length = parts.reduce((sum, part) => sum + part.length, 0)
  return {
    permit: granted,
    method: 'POST',
    url: query === '' ? url : withQuery(url, query, target.query),
    headers: [
      ...providerRequestHeaders(target.headers, headers, length, ownKey),
      LOOP,
      loopChain(headers[LOOP], loopToken),
    ],
    body: parts,
    timeouts: target.timeouts,
    proxy: target.provider.tunnel,
    hangup,
  }
}

const withoutNames = (headers: IncomingHttpHeaders, names: readonly string[]): IncomingHttpHeaders =>
  Object.fromEntries(Object.entries(headers).filter(([name]) => !names.includes(name)))

/** Names who has passed a request on (RFC 8586), so that each of them knows it when it comes back. */
export const LOOP = 'cdn-loop'

/** Returns the caller's chain and our token. A chain that is longer than any honest one is begun again. */
const loopChain = (chain: string | string[] | undefined, token: string): string =>
  typeof chain === 'string' && /^[\x20-\x7e]{1,1024}$/.test(chain) ? `${chain}, ${token}` : token

function urlOf({ urls, provider }: ProviderTarget, path: string): URL {
  const url = urls.get(path)
  if (!url) throw new Error(`${provider.name} has no address for ${path}`)
  return url
}

/** Writes another model name into the body; every other byte stays as it was. */
function withModel(body: Buffer, span: JsonSpan | undefined, model: string): readonly Buffer[] {
  if (!span) throw new Error('the body has no member model, though a call was made of it')
  return [body.subarray(0, span.start), Buffer.from(JSON.stringify(model)), body.subarray(span.end)]
}
