import { isObject } from '../../../db/support/json.ts'
import { withDeadline } from '../../../plugins/deadline.ts'
import { quotesSecret, type SecretTraces, secretTraces } from '../../../plugins/secrets/traces.ts'
import { type ErrorWords, errorSentence, parseErrorWords, statedError } from '../../egress/error-words.ts'
import type { LlmOptions } from '../options.ts'
import { abandonAnswer, discardAnswer, readWholeBody, type UpstreamAnswer } from './answer.ts'
import { isJsonAnswer, isReadableContent, secretsIn } from './headers.ts'

/** Bytes. A longer text of a failure is replaced by our words. So little is not counted as held. */
const MAX_BODY = 16_384
/** Nobody waits longer for the words of a failure. ms. */
const MAX_WAIT_MS = 1_000

/** Makes the traces of every provider's key, and of the headers that the operator's file sets. */
export const providerSecretTraces = ({ providers }: LlmOptions): SecretTraces =>
  secretTraces(providers.flatMap(secretsIn))

/**
 * Reads a provider's words about its failure. Resolves with null if they do not come within a second, are no
 * JSON, longer than 16 KiB, or quote a secret of ours. Never rejects.
 */
export async function readProviderWords(
  answer: UpstreamAnswer,
  secrets: SecretTraces,
): Promise<ErrorWords | null> {
  const body = await readShortJson(answer)
  return body === null || quotesSecret(secrets, body) ? null : parseErrorWords(parseOrNull(body))
}

/** Reads an answer that is JSON, by its type or else its text. Resolves as {@link readProviderWords}. */
export async function readShortJson(answer: UpstreamAnswer): Promise<Buffer | null> {
  const mayBeJson = isJsonAnswer(answer.headers) || SAYS_NOTHING.test(answer.headers['content-type'] ?? '')
  if (!mayBeJson || !isReadableContent(answer.headers)) {
    discardAnswer(answer)
    return null
  }
  try {
    const body = await withDeadline({ ms: MAX_WAIT_MS }, () => readWholeBody(answer, MAX_BODY))
    return body !== null && typeof parseOrNull(body) === 'object' && isJsonText(body) ? body : null
  } catch {
    // Late or broken off: its status is reported, in our words.
    abandonAnswer(answer)
    return null
  }
}

/** Content types under which servers send JSON that they have not labelled. */
const SAYS_NOTHING = /^(?:text\/(?:plain|json)\b.*|application\/octet-stream)?$/i

/** Tells whether a body that is said to be JSON is; of a long one, whether it begins like that. */
export const isJsonText = (body: Buffer): boolean =>
  body.length > MAX_BODY ? /^\s*[[{"]/.test(body.toString('latin1', 0, 64)) : parseOrNull(body) !== null

function parseOrNull(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString())
  } catch {
    return null
  }
}

/**
 * Tells whether a refusal is about the gateway's key, account or address: a 403 unless its words are about
 * the request, and a 400 whose words are about the key. `models`: the names of the model that was asked for.
 */
export function refusesKey(status: number, body: Buffer | null, models: readonly (string | null)[]): boolean {
  if (status !== 400 && status !== 403) return false
  const error = body === null || body.length > MAX_BODY ? null : statedError(parseOrNull(body))
  if (error === null) return status === 403
  const names = [error.type, error.code, error.status, reasonsIn(error.details)].flat().join(' ')
  const message = errorSentence(error)
  if (status === 400) return KEY_NAME.test(names) || KEY_SENTENCE.test(message)
  if (SCOPE_SENTENCE.test(message)) return true
  const { param, metadata } = error
  const isFlagged = isObject(metadata) && ('flagged_input' in metadata || 'reasons' in metadata)
  return !(
    isFlagged ||
    REQUEST_NAME.test(names) ||
    (typeof param === 'string' && REQUEST_PARAM.test(param)) ||
    REQUEST_SENTENCE.test(message) ||
    models.some((model) => model !== null && DISTINCT_NAME.test(model) && message.includes(model))
  )
}

/** A name that is no mere word of a sentence: a caller may ask for any, and would get the words about our key. */
const DISTINCT_NAME = /^(?=.*[a-z])(?=.*[\d/:._-])/i

const KEY_NAME = /invalid_api_key|api_key_invalid|authentication_error|invalid_authentication/i
const KEY_SENTENCE =
  /\b(?:incorrect|invalid|expired)\s(?:\w+\s)?api[ _-]?key\b|\bapi[ _-]?key\s(?:is\s)?(?:not valid|invalid|incorrect|expired)/i
/** A restricted key names what it may do: `Missing scopes: model.request`. */
const SCOPE_SENTENCE = /\bmissing scopes?\b/i
const REQUEST_NAME = /model|content|moderat|flagged|safety|policy_violation|prompt|country|region|territory/i
const REQUEST_PARAM = /^(?:model|messages|input|prompt|tools|system)\b/i
const REQUEST_SENTENCE =
  /\bmodels?\b|\bflagged\b|\bmoderation\b|\bsafety\b|\bharmful\b|\b(?:content|usage) (?:polic|guideline)|\bguidelines\b|\bcontext length\b/i

const reasonsIn = (details: unknown): readonly unknown[] =>
  Array.isArray(details) ? details.map((detail: unknown) => (isObject(detail) ? detail.reason : null)) : []
