import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import type { ProviderErrorFields } from '../../plugins/refusal.ts'

/** Characters: of the sentence, and of each name. */
const MAX_MESSAGE = 4_096
const MAX_NAME = 256

export interface ErrorWords extends ProviderErrorFields {
  readonly message: string
}

/** Reads an upstream's words about its failure, in the form of either vendor's error or of its imitators. */
export function parseErrorWords(body: unknown): ErrorWords | null {
  const said = statedError(body)
  const message = said === null ? '' : errorSentence(said)
  if (said === null || message === '') return null
  const names = Object.entries({ type: said.type, code: said.code, param: said.param }).flatMap(
    ([name, value]) => (isName(value) ? [[name, String(value).toWellFormed()]] : []),
  )
  return { ...Object.fromEntries(names), message: message.slice(0, MAX_MESSAGE).toWellFormed() }
}

/** Returns the error that a body states, in the form of either vendor or of an imitator; null if it is none. */
export function statedError(body: unknown): UnknownRecord | null {
  // Google sends a list of one.
  const stated: unknown = Array.isArray(body) ? body[0] : body
  if (!isObject(stated)) return null
  return isObject(stated.error) ? stated.error : stated
}

/** Returns the sentence of an error that {@link statedError} found; empty if it has none. */
export const errorSentence = ({ message, error, detail }: UnknownRecord): string =>
  [message, error, detail].find((text): text is string => typeof text === 'string' && text !== '') ?? ''

const isName = (value: unknown): boolean =>
  typeof value === 'number' || (typeof value === 'string' && value !== '' && value.length <= MAX_NAME)
