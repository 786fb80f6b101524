import type { JsonObject } from '../../db/support/json.ts'
import { isReadableText, quotesSecret, quotesUnbroken, SecretScreen } from '../../plugins/secrets/traces.ts'
import type { CallReport, Reply } from '../http/reply.ts'
import { isRequestedModel } from './answered-models.ts'
import { answerTap } from './dialects/answer-tap.ts'
import type { ProviderUsage } from './dialects/stated-usage.ts'
import type { AnswerReading } from './dialects/statements.ts'
import { type DocumentListener, readDocument } from './dialects/statements.ts'
import type { LlmDependencies, LlmFacts } from './llm-call.ts'
import { brokenOffEvent, unreadAnswer } from './refusals.ts'
import {
  failedOf,
  type ProviderAnswer,
  refuseQuoted,
  refuseWith,
  secretQuotedError,
} from './refused-answer.ts'
import type { ProviderTarget } from './routing.ts'
import { STATED_NAMES, statedIds } from './state/stated-ids.ts'
import type { ToldRequest } from './translate/call.ts'
import { isEventStream, requestIdOf, responseHeaders } from './upstream/headers.ts'

/** Bytes. The end of an answer so far: as much as shows an event that was cut in half. */
const TAIL_LENGTH = 2

/** Passes on an answer of the caller's own wire, byte for byte. Refuses one that quotes a secret or cannot be read. */
export function passOnAnswer(
  answered: ProviderAnswer,
  facts: LlmFacts,
  means: LlmDependencies,
): Reply | Promise<Reply> {
  const { granted, id, held } = facts
  const { target, answer } = answered
  const { status, headers: stated, body } = answer
  const { traces } = target.headers
  const { names } = granted.target.endpoint
  const hear = stateListener(answered, facts, means)
  const { 'content-type': type = '', 'content-encoding': encoding, 'content-length': length } = stated
  const headers = responseHeaders(stated, target.headers.returns)
  if (Buffer.isBuffer(body)) {
    if (traces.length > 0) {
      if (!isReadableText(body, true)) return refuseWith(unreadAnswer(failedOf(answered)), answered)
      if (quotesUnbroken(traces, body)) return refuseQuoted(answered)
    }
    const read = (): WholeReading => {
      const reading = encoding === undefined ? readDocument(names, body, hear) : null
      if (reading) return { reading, isWhole: true }
      // Whatever else came, such as events under the name of JSON.
      const tap = answerTap(names, type, encoding, null, hear)
      tap.observe(body)
      const isWhole = tap.isWhole(true)
      return { reading: tap.read(isWhole), isWhole }
    }
    // The caller may name an id of it in its next request.
    const early = hear && read()
    const report = (): CallReport => {
      const { reading, isWhole } = early ?? read()
      const judged = judgedReport(answered, reading, facts, means)
      return isWhole ? judged : { ...judged, failed: true, reason: 'provider_failed' }
    }
    return { status, headers, body, report }
  }
  const isEvents = isEventStream(stated)
  // Tells proxies in between to pass each event on at once.
  if (isEvents) headers['x-accel-buffering'] = 'no'
  // So that a caller can tell a whole answer from a cut one.
  else if (length !== undefined) headers['content-length'] = length
  const tap = answerTap(names, type, encoding, held, hear)
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

const FALSE = Buffer.from('false')

interface WholeReading {
  readonly reading: AnswerReading
  readonly isWhole: boolean
}

/** Makes the listener that remembers which ids an answer states; undefined if nobody asks for them later. */
function stateListener(
  { target: { provider } }: ProviderAnswer,
  { granted, commitments, body, scan: { spans } }: LlmFacts,
  { states }: LlmDependencies,
): DocumentListener | undefined {
  const { wire } = granted.target.endpoint
  if (wire === undefined || provider.state !== 'own') return undefined
  const names = STATED_NAMES[wire]
  if (names.askedBy?.some((name) => spans.has(name)) === false) return undefined
  const owner = { ref: granted.principal.ref, commitments }
  const store = spans.get('store')
  const stores = store === undefined || body.compare(FALSE, 0, FALSE.length, store.start, store.end) !== 0
  const asked = { has: (name: string) => spans.has(name), stores }
  return (root) => states.note(owner, provider.name, statedIds(names, root, asked))
}

/** Reports an answer, the failure that it tells of, and why its counts are not known. */
export function judgedReport(
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

export function reportOf(
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
  { from, to, body, dropped, carried, answer }: ToldRequest,
  commitments: LlmFacts['commitments'],
): JsonObject => ({
  ...{ from, to, dropped: [...dropped], carried: [...carried] },
  ...{ sent_sha256: commitments.of('sent_sha256', body), sent_bytes: body.length },
  ...(answer.isStopped && { stopped_by: 'gateway' }),
})
