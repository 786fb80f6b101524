import { isObject, type Members } from '../../../db/json.ts'
import { deadline } from '../../../plugins/deadline.ts'
import type { OthersWords } from '../../../plugins/refusal.ts'
import type { LlmOptions } from '../options.ts'
import { abandon, discard, type UpstreamAnswer, wholeOf } from './answer.ts'
import { isJson } from './headers.ts'

/**
 * Bytes. A failure that is told at greater length is told in our words. So little costs less than its connection
 * does, and is not counted as held: another provider's answer may have ended the call before it has come.
 */
const MAX_BODY = 16_384
/** Characters: of the sentence, and of each name. */
const MAX_MESSAGE = 4_096
const MAX_NAME = 256
/** Nobody waits longer for the words of a failure. ms. */
const MAX_WAIT_MS = 1_000
/** A shorter word of a configured header is no secret: `Bearer`, or a version. Characters. */
const LEAST_SECRET = 8

/** What a provider says of its failure. */
export interface ProviderWords extends OthersWords {
  readonly message: string
}

/** Tells whether a text quotes a secret that is ours. */
export type QuotesSecret = (text: string | Buffer) => boolean

/** Knows the key of every provider, and the values of the headers that the operator's file sets. */
export function secretsOf({ providers }: LlmOptions): QuotesSecret {
  const keys = providers.map(({ api_key: key }) => key)
  const words = providers.flatMap(({ headers }) =>
    Object.values(headers).flatMap((text) => text.split(/\s+/)),
  )
  const secrets = new Set([...keys, ...words.filter((word) => word.length >= LEAST_SECRET)])
  secrets.delete('')
  return (text) => [...secrets].some((secret) => text.includes(secret))
}

/**
 * Reads what a provider says of its failure, in the form of either vendor's error or of those who imitate them.
 * Resolves with null where that is not said in a second, is no JSON, longer than 16 KiB, or quotes a secret of ours.
 * Never rejects.
 */
export async function wordsOf(
  answer: UpstreamAnswer,
  quotesSecret: QuotesSecret,
): Promise<ProviderWords | null> {
  if (!isJson(answer.headers)) {
    discard(answer)
    return null
  }
  try {
    const body = await deadline({ ms: MAX_WAIT_MS }, () => wholeOf(answer, MAX_BODY))
    const words = body === null || quotesSecret(body) ? null : wordsIn(JSON.parse(body.toString()))
    // What JSON escapes is plain only now.
    return words && Object.values(words).some(quotesSecret) ? null : words
  } catch {
    // Late, broken off, or no JSON: its status is told, in our words.
    abandon(answer)
    return null
  }
}

function wordsIn(body: unknown): ProviderWords | null {
  if (!isObject(body)) return null
  const { error } = body
  const said: Members = isObject(error) ? error : body
  const message = [said.message, error, said.detail].find((text) => typeof text === 'string' && text !== '')
  if (typeof message !== 'string') return null
  const names = Object.entries({ type: said.type, code: said.code, param: said.param }).flatMap(
    ([name, value]) => (isName(value) ? [[name, String(value).toWellFormed()]] : []),
  )
  return { ...Object.fromEntries(names), message: message.slice(0, MAX_MESSAGE).toWellFormed() }
}

const isName = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && value !== '' && value.length <= MAX_NAME)
