import { isObject, type UnknownRecord } from '../../db/support/json.ts'
import type { ProviderErrorFields } from '../../plugins/refusal.ts'

/** Characters: of the sentence, and of each name. */
const MAX_MESSAGE = 4_096
const MAX_NAME = 256

/** The words of an upstream about its failure. */
export interface ErrorWords extends ProviderErrorFields {
  readonly message: string
}

/** Reads an upstream's words about its failure, in the form of either vendor's error or of its imitators. */
export function parseErrorWords(body: unknown): ErrorWords | null {
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
