import type { IncomingHttpHeaders } from 'node:http'
import type { JsonObject } from '../../db/support/json.ts'
import type { JsonBody } from '../../plugins/json-body/json-body.ts'
import { type JsonSpan, scanJson } from '../../plugins/json-body/scan.ts'
import type { CallPermit } from '../../plugins/permit.ts'
import type { PinnedCaller } from '../../plugins/pin/pin.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import {
  isReadableText,
  quotesSecret,
  quotesUnbroken,
  SecretScreen,
  type SecretTraces,
} from '../../plugins/secrets/traces.ts'
import type { CallReport, Reply } from '../http/reply.ts'
import { isRequestedModel, type ModelMismatches } from './answered-models.ts'
import { CredentialError, type ProviderKeys } from './credentials/provider-keys.ts'
import { answerTap } from './dialects/answer-tap.ts'
import { DIALECT_BY_NAME, DIALECT_OF_WIRE, PATH_OF_WIRE } from './dialects/registry.ts'
import type { ProviderUsage } from './dialects/stated-usage.ts'
import { type AnswerReading, readDocument } from './dialects/statements.ts'
import type { LlmOptions } from './options.ts'
import {
  attemptOf,
  brokenOffEvent,
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
import {
  failedOf,
  type ProviderAnswer,
  passOnRefusal,
  refuseQuoted,
  refuseWith,
  secretQuotedError,
} from './refused-answer.ts'
import { type AskedTarget, type LlmTarget, type ProviderTarget, providerRouting } from './routing.ts'
import { type ToldRequest, tellCall } from './translate/call.ts'
import { failureOfRefusal, tellAnswer, translationHeader } from './translated-answer.ts'
import {
  abandonAnswer,
  discardAnswer,
  type LlmUpstream,
  type UpstreamAnswer,
  type UpstreamRequest,
} from './upstream/answer.ts'
import {
  hasCredentials,
  isApiContent,
  isEventStream,
  isReadableContent,
  providerRequestHeaders,
  requestIdOf,
  responseHeaders,
  withoutSecrets,
} from './upstream/headers.ts'
import type { IdempotencyKeys } from './upstream/idempotency-keys.ts'
import { withQuery } from './upstream/provider.ts'
import { vertexRequest } from './upstream/vertex.ts'
import { providerSecretTraces, readProviderWords } from './upstream/words.ts'

/** Bytes. The end of an answer so far: as much as shows an event that was cut in half. */
const TAIL_LENGTH = 2

export type LlmFacts = Arrival &
  Pick<JsonBody, 'body' | 'spans'> &
  Pick<PinnedCaller, 'commitments'> & { granted: CallPermit<LlmTarget> }

export interface LlmServices {
  readonly upstream: LlmUpstream
  readonly providerKeys: Pick<ProviderKeys, 'headers' | 'refused' | 'traces'>
  readonly idempotencyKeys: IdempotencyKeys
  /** The name of the gateways on this database in `CDN-Loop` (RFC 8586): a token that nobody can guess. */
  readonly loopToken: string
  readonly modelMismatches: Pick<ModelMismatches, 'note' | 'noteUnserved'>
}

interface LlmDependencies extends LlmServices {
  readonly secrets: SecretTraces
}

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
        return targetsOf(model, endpoint)
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

async function firstAnswer(
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

type AskedRequest = Pick<ProviderAnswer, 'target' | 'told'>

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
  return upstream.call(requestTo(asked, facts, means)).then(
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

function requestTo(
  { target, told }: AskedRequest,
  { granted, body, spans, headers: given, query: stated, hangup }: LlmFacts,
  { idempotencyKeys, loopToken }: LlmDependencies,
): UpstreamRequest {
  const key = given['idempotency-key']
  const ownKey = typeof key === 'string' ? idempotencyKeys(granted.principal, key) : null
  const requested = granted.target
  const { model } = target
  // What a vendor's own headers and parameters choose is of that vendor's API.
  const headers = told
    ? withoutNames(given, DIALECT_BY_NAME[requested.endpoint.dialect].headers.request)
    : given
  const query = told ? '' : stated
  const path = told ? PATH_OF_WIRE[told.to] : requested.endpoint.upstreamPath
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
const LOOP = 'cdn-loop'

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

function passOnAnswer(
  answered: ProviderAnswer,
  facts: LlmFacts,
  means: LlmDependencies,
): Reply | Promise<Reply> {
  const { granted, id, held } = facts
  const { target, answer } = answered
  const { status, headers: stated, body } = answer
  const { traces } = target.headers
  const { names } = granted.target.endpoint
  const { 'content-type': type = '', 'content-encoding': encoding, 'content-length': length } = stated
  const headers = responseHeaders(stated, target.headers.returns)
  if (Buffer.isBuffer(body)) {
    if (traces.length > 0) {
      if (!isReadableText(body, true)) return refuseWith(unreadAnswer(failedOf(answered)), answered)
      if (quotesUnbroken(traces, body)) return refuseQuoted(answered)
    }
    const report = (): CallReport => {
      const reading = encoding === undefined ? readDocument(names, body) : null
      if (reading) return judgedReport(answered, reading, facts, means)
      // Whatever else came, such as events under the name of JSON.
      const tap = answerTap(names, type, encoding)
      tap.observe(body)
      const isWhole = tap.isWhole(true)
      const judged = judgedReport(answered, tap.read(isWhole), facts, means)
      return isWhole ? judged : { ...judged, failed: true, reason: 'provider_failed' }
    }
    return { status, headers, body, report }
  }
  const isEvents = isEventStream(stated)
  // Tells proxies in between to pass each event on at once.
  if (isEvents) headers['x-accel-buffering'] = 'no'
  // So that a caller can tell a whole answer from a cut one.
  else if (length !== undefined) headers['content-length'] = length
  const tap = answerTap(names, type, encoding, held)
  let isWhole = false
  const screen = traces.length > 0 ? new SecretScreen(traces) : null
  let tail: Buffer = Buffer.alloc(0)
  return {
    status,
    headers,
    body: {
      source: body,
      ...(screen && { screen }),
      observe: (chunk) => {
        tail =
          chunk.length >= TAIL_LENGTH
            ? chunk.subarray(-TAIL_LENGTH)
            : Buffer.concat([tail, chunk]).subarray(-TAIL_LENGTH)
        tap.observe(chunk)
      },
      isWhole: (ended) => {
        isWhole = tap.isWhole(ended)
        return isWhole
      },
      ...(isEvents && { brokenOff: () => brokenOffEvent(granted.target.endpoint, body.errored, tail, id) }),
    },
    report: () => ({
      ...judgedReport(answered, tap.read(isWhole), facts, means),
      ...(screen?.quoted && { failed: true, reason: 'provider_failed', cause: secretQuotedError() }),
    }),
  }
}

const isTold = (answered: ProviderAnswer): answered is ProviderAnswer & { told: ToldRequest } =>
  answered.told !== null

/** Passes on the answer of a translated request, in the caller's wire. */
async function tellOn(
  answered: ProviderAnswer & { readonly told: ToldRequest },
  facts: LlmFacts,
  means: LlmDependencies,
): Promise<Reply> {
  const { target, answer, told } = answered
  const { status, headers: stated } = answer
  if (status >= 300) return refuseWith(failureOfRefusal(answered, means.secrets), answered)
  const { usage, outcome } = DIALECT_BY_NAME[DIALECT_OF_WIRE[told.to]]
  const tap = answerTap(
    { usage, outcome },
    stated['content-type'] ?? '',
    stated['content-encoding'],
    facts.held,
  )
  const { headers, body, failure } = await tellAnswer(answered, facts, tap)
  const report = (): CallReport => {
    const cause = failure()
    const judged = judgedReport(answered, tap.read(tap.isWhole(true)), facts, means)
    return { ...judged, ...(cause && { failed: true, reason: 'provider_failed', cause }) }
  }
  return {
    status,
    headers: {
      ...responseHeaders(stated, target.headers.returns),
      ...headers,
      'x-sallyport-translated': translationHeader(told),
    },
    ...(body !== undefined && { body }),
    report,
  }
}

/** Reports an answer, the failure that it tells of, and why its counts are not known. */
function judgedReport(
  answered: ProviderAnswer,
  { usage, tokensUnknown, fault }: AnswerReading,
  facts: LlmFacts,
  means: LlmDependencies,
): CallReport {
  const report = comparedReport(answered, usage, facts, means)
  const unknown = facts.granted.target.endpoint.isFree ? null : tokensUnknown
  if (!fault && !unknown) return report
  const code = fault?.code ?? null
  const isQuoting = code !== null && quotesSecret(means.secrets, Buffer.from(code))
  return {
    ...report,
    ...(fault && { failed: true, reason: 'provider_failed' }),
    detail: {
      ...report.detail,
      ...(code !== null && !isQuoting && { error_code: code }),
      ...(unknown && { tokens_unknown: unknown }),
    },
  }
}

/** Reports an answer, and tells whether the model that gave it is the one that was asked for. */
function comparedReport(
  answered: ProviderAnswer,
  stated: ProviderUsage,
  facts: LlmFacts,
  { modelMismatches }: LlmDependencies,
): CallReport {
  const usage = withoutQuotes(stated, answered.target)
  const { id, at } = facts
  const report = reportOf(answered, usage, facts)
  const { provider, model: asked } = answered.target
  const { upstream_model: named = asked } = usage
  if (asked === null || named === null || named === asked || isRequestedModel(provider, asked, named))
    return report
  modelMismatches.note({ provider: provider.name, asked, answered: named, at, requestId: id })
  return { ...report, detail: { ...report.detail, model_differs: true } }
}

/** Leaves out the words of a provider if one quotes a secret, which no row may hold. */
function withoutQuotes(
  usage: ProviderUsage,
  { model, headers: { credentials } }: ProviderTarget,
): ProviderUsage {
  const { upstream_model: named, service_tier: tier, speed, geo, further, ...counts } = usage
  const words = [
    named === model ? undefined : named,
    tier,
    speed,
    geo,
    ...(further ?? []).map((one) => one.model),
  ]
    .filter((word) => word !== undefined)
    .join('\n')
  return words === '' || !quotesSecret(credentials, Buffer.from(words)) ? usage : counts
}

function reportOf(
  { target, answer, told, failed, waitedMs, cameAt }: ProviderAnswer,
  usage: ProviderUsage,
  { commitments }: Pick<LlmFacts, 'commitments'>,
): CallReport {
  const { status, headers, body, firstByteMs } = answer
  // A stream has come for as long as it was passed on.
  const streamedMs = Buffer.isBuffer(body) ? 0 : performance.now() - cameAt
  const requestId = requestIdOf(headers)
  const { name } = target.provider
  return {
    provider: name,
    timing: { firstByteMs, upstreamMs: waitedMs + streamedMs },
    detail: {
      upstream_status: status,
      ...(requestId !== null && { upstream_request_id: requestId }),
      attempts: [...failed, { provider: name, status }],
      ...(told && { translated: translationOf(told, commitments) }),
      ...usage,
    },
  }
}

/** Makes a row's account of a translation: it commits to what was sent, as to the body that came. */
const translationOf = (
  { from, to, body, dropped, carried }: ToldRequest,
  commitments: LlmFacts['commitments'],
): JsonObject => ({
  ...{ from, to, dropped: [...dropped], carried: [...carried] },
  ...{ sent_sha256: commitments.of('sent_sha256', body), sent_bytes: body.length },
})
