import { isObject, type UnknownRecord } from '../../../db/support/json.ts'
import { withDeadline } from '../../../plugins/deadline.ts'
import type { ProviderErrorFields } from '../../../plugins/refusal.ts'
import { quotesSecret, type SecretTraces, secretTraces } from '../../../plugins/secrets/traces.ts'
import type { LlmOptions } from '../options.ts'
import { abandonAnswer, discardAnswer, readWholeBody, type UpstreamAnswer } from './answer.ts'
import { isJsonAnswer, secretsIn } from './headers.ts'

/**
 * Bytes. A longer text of a failure is replaced by our words. So little costs less than its connection does,
 * and is not counted as held: another provider's answer may have ended the call before it has come.
 */
const MAX_BODY = 16_384
/** Characters: of the sentence, and of each name. */
const MAX_MESSAGE = 4_096
const MAX_NAME = 256
/** Nobody waits longer for the words of a failure. ms. */
const MAX_WAIT_MS = 1_000

/** A provider's words about its failure. */
export interface ProviderWords extends ProviderErrorFields {
  readonly message: string
}

/** Makes the traces of every provider's key, and of the headers that the operator's file sets. */
export const providerSecretTraces = ({ providers }: LlmOptions): SecretTraces =>
  secretTraces(providers.flatMap(secretsIn))

/**
 * Reads a provider's words about its failure, in the form of either vendor's error or of its imitators.
 * Resolves with null if they do not come within a second, are no JSON, longer than 16 KiB, or quote a secret
 * of ours. Never rejects.
 */
export async function readProviderWords(
  answer: UpstreamAnswer,
  secrets: SecretTraces,
): Promise<ProviderWords | null> {
  if (!isJsonAnswer(answer.headers)) {
    discardAnswer(answer)
    return null
  }
  try {
    const body = await withDeadline({ ms: MAX_WAIT_MS }, () => readWholeBody(answer, MAX_BODY))
    return body === null || quotesSecret(secrets, body)
      ? null
      : parseProviderWords(JSON.parse(body.toString()))
  } catch {
    // Late, broken off, or no JSON: its status is reported, in our words.
    abandonAnswer(answer)
    return null
  }
}

function parseProviderWords(body: unknown): ProviderWords | null {
  if (!isObject(body)) return null
  const { error } = body
  const said: UnknownRecord = isObject(error) ? error : body
  const message = [said.message, error, said.detail].find((text) => typeof text === 'string' && text !== '')
  if (typeof message !== 'string') return null
  const names = Object.entries({ type: said.type, code: said.code, param: said.param }).flatMap(
    ([name, value]) => (isName(value) ? [[name, String(value).toWellFormed()]] : []),
  )
  return { ...Object.fromEntries(names), message: message.slice(0, MAX_MESSAGE).toWellFormed() }
}

const isName = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && value !== '' && value.length <= MAX_NAME)
