import type { CallPermit } from '../../plugins/permit.ts'
import type { Arrival } from '../../plugins/plugin.ts'
import { Refusal } from '../../plugins/refusal.ts'
import {
  isReadableText,
  quotesSecret,
  quotesSecretSteps,
  type SecretTraces,
} from '../../plugins/secrets/traces.ts'
import { BYTES_AT_ONCE, runInSlices } from '../../plugins/turns.ts'
import type { Reply } from '../http/reply.ts'
import {
  type AttemptRecord,
  attemptOf,
  keyFailure,
  type ProviderFailure,
  refusalOfFailure,
  unusableAnswer,
  wordlessRefusal,
} from './refusals.ts'
import type { LlmTarget, ProviderTarget } from './routing.ts'
import type { ToldRequest } from './translate/call.ts'
import { readWholeBody, type UpstreamAnswer } from './upstream/answer.ts'
import { isApiContent, isEventStream, responseHeaders } from './upstream/headers.ts'
import { isJsonText, readShortJson, refusesKey } from './upstream/words.ts'

/** Bytes. A provider's own refusal is read whole before it is passed on. */
const MAX_ERROR_BODY = 1024 * 1024

export interface ProviderAnswer {
  readonly target: ProviderTarget
  readonly answer: UpstreamAnswer
  /** The request, if it was translated. */
  readonly told: ToldRequest | null
  readonly failed: readonly AttemptRecord[]
  /** The time that the call has waited for providers until then. ms. */
  readonly waitedMs: number
  /** The instant at which the answer was there. ms of the monotonic clock. */
  readonly cameAt: number
}

export type PassedCall = Pick<Arrival, 'held' | 'hangup'> & { readonly granted: CallPermit<LlmTarget> }

export async function refuseWith(failure: ProviderFailure, { failed }: ProviderAnswer): Promise<never> {
  throw await refusalOfFailure(failure, [...failed, attemptOf(failure)])
}

export const refuseQuoted = (answered: ProviderAnswer): Promise<never> =>
  refuseWith(unusableAnswer(failedOf(answered), { cause: secretQuotedError() }), answered)

export const failedOf = ({ target: { provider }, answer }: ProviderAnswer) => ({ provider, ...answer })

export const secretQuotedError = (): Error =>
  new Error('the answer quotes a secret that providers are called with')

/** Passes on a provider's own refusal of this request, in our words if it has none. */
export async function passOnRefusal(
  answered: ProviderAnswer,
  { granted, held, hangup: { signal } }: PassedCall,
  secrets: SecretTraces,
): Promise<Omit<Reply, 'report'>> {
  const { target, answer } = answered
  const { provider, model, headers: sent } = target
  const { status, headers } = answer
  let cause: unknown
  const body = await readRefusal(answer, held).catch((error: unknown) => {
    if (error instanceof Refusal) throw error
    cause = error
    return null
  })
  if (!sent.callerKey && refusesKey(status, body, [model, granted.target.model]))
    return refuseWith(keyFailure(provider, status), answered)
  if (body !== null) {
    const quotes =
      body.length > BYTES_AT_ONCE
        ? await runInSlices(quotesSecretSteps(secrets, body), signal)
        : quotesSecret(secrets, body)
    if (quotes) return refuseQuoted(answered)
  }
  if (body === null) return refuseWith(wordlessRefusal(failedOf(answered), cause), answered)
  const type = isApiContent(answer.headers) ? {} : { 'content-type': 'application/json' }
  return {
    status,
    headers: { ...responseHeaders(headers, sent.returns), ...type },
    body,
  }
}

/** Reads a refusal that is written in the form of its API; null if it is not, or longer than 1 MiB. */
async function readRefusal(answer: UpstreamAnswer, held: PassedCall['held']): Promise<Buffer | null> {
  if (!isApiContent(answer.headers)) return readShortJson(answer)
  const body = await readWholeBody(answer, MAX_ERROR_BODY, held)
  if (body === null || !isReadableText(body, true)) return null
  return isEventStream(answer.headers) || isJsonText(body) ? body : null
}
